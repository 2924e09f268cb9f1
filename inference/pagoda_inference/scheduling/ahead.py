"""The next step, chosen while one runs: where all do nothing but decode, their lengths say everything about it.

A plan is a list of chunks, and blocks that were taken a step early. Nothing is charged for it. Whoever's answer ends
meanwhile gives its blocks back as ever and is left out; where anything else has come up the plan is forgotten, and the
blocks are those that the sequences need next anyway. So that a planned step is the one that would have been scheduled.
"""

from __future__ import annotations

from pagoda_inference.kv.pool import Pool
from pagoda_inference.scheduling.limits import StepLimits
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.scheduling.workload import Workload


class Ahead:
    """Plans steps in which every running request decodes one sequence, with nobody waiting, paused or held back."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._planned: list[ScheduledChunk] = []

    def plan(self, step: Step) -> None:
        """Plan the step after this one, which has been begun; its chunks' next tokens are not known yet."""
        self._planned = []
        if step.drafted or not self._all_decode(step.chunks):
            return
        chunks = [request.steady for request in self._workload.running if request.steady is not None]
        going = [chunk for chunk in chunks if _goes_on(chunk)]
        at_end = [chunk for chunk in going if chunk.start + 1 >= chunk.capacity]
        inside = [chunk for chunk in going if chunk.start + 1 < chunk.capacity]
        if all(_grow(self._workload.pool, chunk) for chunk in at_end):
            self._planned = inside + at_end

    def take(self, limits: StepLimits) -> list[ScheduledChunk] | None:
        """The chunks that were planned, if they are what is to be done; else None. Once."""
        planned, self._planned = self._planned, []
        if not planned:
            return None
        chunks = [chunk for chunk in planned if chunk.sequence.request.steady is chunk]
        if not chunks or not self._all_decode(chunks):
            return None
        most = limits.decodes(prompts=False)
        return chunks if most is None or len(chunks) <= most else None

    def _all_decode(self, chunks: list[ScheduledChunk]) -> bool:
        """Whether these chunks, one of each running request, are all there is to do."""
        workload = self._workload
        if len(workload.waiting) or workload.publishing or workload.ready or workload.counters.backlogged:
            return False
        return len(chunks) == len(workload.running) and all(chunk.sequence.request.steady is chunk for chunk in chunks)


def _goes_on(chunk: ScheduledChunk) -> bool:
    """Whether the sequence may have another token after the chunk's."""
    return chunk.sequence.output_length + 1 < chunk.sequence.request.max_tokens


def _grow(pool: Pool, chunk: ScheduledChunk) -> bool:
    """Take the block behind the chunk's last slot. False, with nothing taken, where somebody would have to give way."""
    table = chunk.sequence.table
    if table is None or table.forked or pool.accounts.room(chunk.sequence.request.ledger) < 1:
        return False
    pool.append(table, chunk.start + 1, chunk.start + 2)
    chunk.capacity = table.capacity
    return True
