"""A whole engine whose model runs beside it: results are there when they are waited for, and not before.

What is asked while a step is in flight comes from inside its launch, as it would from another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagoda_inference.model.backend import Chunk, Result
from pagoda_inference.model.launched import Launched
from pagoda_inference.scheduling.limits import StepLimits
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from tests.kv.engine_world import EngineWorld
from tests.kv.watched_backend import BrokenModel, WatchedBackend


class InFlightBackend(WatchedBackend):
    """A step is computed when it is waited for: whatever is done to its blocks before that changes its answers.

    fault: ``launch``, too (a step cannot be queued); the others come up while the step is waited for. on_launch: called
    once, when the next step is in flight. rows: chunks that a token was wanted of. ``wrong`` also has what was done to
    blocks of a step in flight.
    """

    asynchronous = True

    def __init__(self, block_size: int, blocks: int) -> None:
        super().__init__(block_size, blocks)
        self.on_launch: Callable[[], None] | None = None
        self.rows = 0
        self._in_flight: list[tuple[Chunk, list[int]]] = []

    def launch(self, chunks: Sequence[Chunk]) -> Launched:
        if self._in_flight:
            self.wrong.append("two steps in flight")
        if self.fault == "launch":
            self.fault = ""
            self.retried += 1
            raise BrokenModel
        self.rows += sum(chunk.sampler is not None for chunk in chunks)
        self._in_flight = [(chunk, list(chunk.block_table)) for chunk in chunks]
        asked, self.on_launch = self.on_launch, None
        if asked is not None:
            asked()
        return Launched(lambda: self._arrive(chunks))

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        if self._in_flight:
            self.wrong.append("a step beside the one in flight")
        return super().run(chunks)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        if self._in_flight:
            self.wrong.append("a copy on write beside a step")
        super().copy_blocks(pairs)

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        if self._written & set(ids):
            self.wrong.append("a block leaves the pool while it is written")
        return super().read_blocks(ids)

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        if {id for _, table in self._in_flight for id in table} & set(ids):
            self.wrong.append("a block is loaded while a step uses it")
        super().write_blocks(ids, payloads)

    def _arrive(self, chunks: Sequence[Chunk]) -> list[Result]:
        in_flight, self._in_flight = self._in_flight, []
        for chunk, table in in_flight:
            if list(chunk.block_table[: len(table)]) != table:
                self.wrong.append("a step in flight lost its blocks")
        return self.run(chunks)

    @property
    def _written(self) -> set[int]:
        """Blocks that the step in flight writes."""
        size = self.block_size
        return {
            id
            for chunk, table in self._in_flight
            for id in table[
                chunk.start // size : (chunk.start + len(chunk.token_ids) + len(chunk.drafts) - 1) // size + 1
            ]
        }


class InFlightWorld(EngineWorld):
    """Drives an engine over such a backend."""

    Backend = InFlightBackend
    backend: InFlightBackend

    def _begin(self) -> None:
        super()._begin()
        self._watch_plans()

    def _watch_plans(self) -> None:
        """A planned step is the one that would have been scheduled."""
        ahead, decodes, fired = self.scheduler._ahead, self.scheduler._decodes, self.fired
        take, plan = ahead.take, ahead.plan

        def watched_plan(step: Step) -> None:
            free = self.pool.free_blocks
            plan(step)
            fired["planned"] += bool(ahead._planned)
            fired["taken a step early"] += free - self.pool.free_blocks

        def watched_take(limits: StepLimits) -> list[ScheduledChunk] | None:
            planned = len(ahead._planned)
            taken = take(limits)
            if taken is None:
                fired["plan forgotten"] += planned > 0
                return None
            fired["plan kept"] += 1
            fired["ended while the next step was planned"] += len(taken) < planned
            scheduled = Step()
            decodes.schedule(scheduled, limits.decodes(prompts=False))
            assert set(scheduled.chunks) == set(taken)
            assert not scheduled.preempted
            assert not scheduled.exhausted
            return taken

        ahead.plan, ahead.take = watched_plan, watched_take  # type: ignore[method-assign]

    def step(self, count: int = 1, *, copies: int = 0) -> None:
        super().step(count, copies=copies)
        self.engine._tell()

    def in_flight(self, ask: Callable[[], object]) -> bool:
        """Ask for something while the next step is in flight, and end that step. False where no step was to be done:
        nothing was asked then.
        """
        done: list[object] = []
        self.backend.on_launch = lambda: done.append(ask())
        self.step()
        self.backend.on_launch = None
        self._between_steps()
        return bool(done)
