"""The simulation with everything: several answers and beams, lineages, published prefixes, tiers, a virtual clock.

Whatever a chunk reads through its table must be exactly the sequence's tokens. A step lasts as long as what it
computes: time is a function of what was scheduled alone.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence as SequenceOf

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.kv.prefix_index import Digest, chain_digest
from pagoda_inference.kv.tiers.copier import ManualCopier
from pagoda_inference.kv.tiers.tiers import Tiers
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.model.backend import Candidates, Result
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.scheduler import Scheduler
from pagoda_inference.scheduling.sequence import Request, RequestState, Sequence
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.scheduling.swapping import PreemptionCost
from tests.kv.simulation import VOCABULARY, Simulation, next_token

SLOT = struct.Struct("<?iI")


class BlockMemory:
    """The simulation's memory as a backend whose blocks tiers can copy."""

    dtype = "slots"
    device = "cpu"

    def __init__(self, memory: dict[tuple[int, int], tuple[int, int]], blocks: int, size: int) -> None:
        self._memory = memory
        self.total_blocks, self.block_size = blocks, size
        self.bytes_per_block = size * SLOT.size

    def read_blocks(self, ids: SequenceOf[int]) -> list[bytes]:
        return [b"".join(self._slot(id, offset) for offset in range(self.block_size)) for id in ids]

    def write_blocks(self, ids: SequenceOf[int], payloads: SequenceOf[bytes]) -> None:
        for id, payload in zip(ids, payloads, strict=True):
            for offset, (written, token, position) in enumerate(SLOT.iter_unpack(bytes(payload))):
                self._memory.pop((id, offset), None)
                if written:
                    self._memory[id, offset] = (token, position)

    def _slot(self, id: int, offset: int) -> bytes:
        slot = self._memory.get((id, offset))
        return SLOT.pack(slot is not None, *(slot or (0, 0)))


class World(Simulation):
    """``host_blocks`` above 0: a host tier of that size below the pool, whose copies run when released.

    ``trace``: per account what could be observed of it, in order.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        *,
        accounts: list[Account] | None = None,
        token_budget: int = 16,
        max_running: int = 8,
        digest: Digest = chain_digest,
        host_blocks: int = 0,
    ) -> None:
        super().__init__(blocks, block_size, token_budget=token_budget, max_running=max_running, digest=digest)
        self.max_running = max_running
        self.copier = ManualCopier()
        transfers = None
        if host_blocks:
            backend = BlockMemory(self.memory, blocks, block_size)
            tiers = Tiers(
                backend,  # type: ignore[arg-type]
                host_bytes=host_blocks * backend.bytes_per_block,
                disk_bytes=0,
                folder=None,
                model="echo",
                copier=self.copier,
            )
            transfers = Transfers(self.pool, tiers)
        cost = PreemptionCost("swap" if host_blocks else "recompute")
        self.scheduler = Scheduler(
            self.pool, token_budget=token_budget, max_running=max_running, transfers=transfers, cost=cost
        )
        if accounts is not None:
            self.set_accounts(accounts, 1)
        self.priced: Counter[str] = Counter()
        """Input tokens computed and counted as an account's service."""
        self.trace: dict[str, list[tuple[object, ...]]] = {}

    def submit(
        self,
        account: str,
        prompt: list[int],
        max_tokens: int = 8,
        *,
        request_class: str = "interactive",
        scope: str | None = None,
        lineage: str = "",
        samples: int = 1,
        beam_width: int = 0,
    ) -> Request:
        """Queue a request; raises RequestRefused. No time passes but what tells arrivals apart."""
        self.clock += 1e-6
        request = Request.create(
            id=str(next(self._ids)),
            account=account,
            scope=scope or f"tenant:{account}",
            lineage=lineage,
            request_class=request_class,
            arrival=self.clock,
            max_tokens=max_tokens,
            prompt=prompt,
            sampler=Sampler(),
            samples=samples,
            beam_width=beam_width,
        )
        request.candidates = 2 * beam_width
        self.scheduler.add(request)
        return request

    def publish(self, *prefixes: list[int]) -> list[str | None]:
        """Publish exactly these and compute them; the errors' codes."""
        named = [(f"prefix {index}", prefix) for index, prefix in enumerate(prefixes)]
        publications, ended = self.scheduler.publish(named, self.clock)
        for request, error in ended:
            self.finished[request.id] = (request, error.code)
        return [publication.error.code if publication.error else None for publication in publications]

    def step(self, *, fails: bool = False) -> Step:
        """One step of the engine; the clock moves on by what it costs."""
        step = self.scheduler.schedule(self.clock)
        for chunk in step.chunks:
            for source, destination in chunk.copies:
                self._copy(source, destination)
        for request in step.preempted:
            self._note(request, "preempted")
        for request in step.admitted:
            self._note(request, "admitted", request.cached_tokens)
        if fails:
            self.scheduler.fail(step)
            return step
        results = [self._compute(chunk) for chunk in step.chunks]
        for chunk in step.chunks:
            self.priced[chunk.sequence.request.account] += chunk.priced
        self.clock += 1 + sum(0.01 * chunk.count + 0.001 * chunk.start for chunk in step.chunks)
        beams: dict[Request, list[Candidates]] = {}
        for sequence, result in self.scheduler.complete(step, results, self.clock):
            if isinstance(result, Candidates):
                beams.setdefault(sequence.request, []).append(result)
                continue
            self._note(sequence.request, "token", sequence.index, result)
            if sequence.output_length >= sequence.request.max_tokens:
                if len(sequence.request.sequences) > 1:
                    self.scheduler.finish_sequence(sequence)
                else:
                    self._finish(sequence.request, "stop")
        for request, candidates in beams.items():
            self._branch(request, candidates)
        for request in step.exhausted:
            self._finish(request, "length")
        for request, error in step.refused.items():
            self._finish(request, error.code)
        return step

    def run(self, limit: int = 10_000) -> None:
        """Step until nothing is left; copies end as they are needed."""
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            self.step()
            self.copier.release()
            self.check()
        raise AssertionError(f"still at work: {self.scheduler.running} {list(self.scheduler.waiting)}")

    def check(self) -> None:
        """All invariants of the pool. What is read is checked when it is read."""
        self.scheduler.check()

    def _note(self, request: Request, *what: object) -> None:
        self.trace.setdefault(request.account, []).append((round(self.clock, 6), request.id, *what))

    def _finish(self, request: Request, reason: str) -> None:
        self._note(request, reason)
        super()._finish(request, reason)

    def _copy(self, source: int, destination: int) -> None:
        for offset in range(self.pool.block_size):
            self.memory.pop((destination, offset), None)
            if (source, offset) in self.memory:
                self.memory[destination, offset] = self.memory[source, offset]

    def _compute(self, chunk: ScheduledChunk) -> Result:  # type: ignore[override]
        size, sequence = self.pool.block_size, chunk.sequence
        assert sequence.table is not None
        table = sequence.table.blocks
        for position in range(chunk.start, chunk.start + chunk.count):
            block = self.pool.block(table[position // size])
            assert block.references == 1, "a shared block is written"
            assert block.entry is None, "a findable block is written"
            self.memory[block.id, position % size] = (sequence.tokens[position], position)
        read = [self.memory.get((table[p // size], p % size)) for p in range(chunk.start + chunk.count)]
        known = [(token, position) for position, token in enumerate(sequence.tokens[: len(read)])]
        assert read == known, f"{sequence.request}: a wrong block was read"
        if not chunk.sampled:
            return None
        token, request = self._answer(sequence.request, known), sequence.request
        if request.candidates:
            tokens = tuple((token + index) % VOCABULARY for index in range(request.candidates))
            return Candidates(tokens, tuple(-0.5 * index for index in range(len(tokens))))
        if len(request.samplers) > 1 and not request.begun:
            return self._several(request, token)
        return token

    def _answer(self, request: Request, known: list[tuple[int, int]]) -> int:
        return next_token(known)

    def _several(self, request: Request, token: int) -> tuple[int, ...]:
        return tuple((token + index) % VOCABULARY for index in range(len(request.samplers)))

    def _branch(self, request: Request, candidates: list[Candidates]) -> None:
        """Beams that fork and end in turns: the last ones end, the first ones fork."""
        if request.state is not RequestState.RUNNING:
            return
        if request.sequences[0].output_length + 1 >= request.max_tokens:
            self._finish(request, "stop")
            return
        width = request.beam_width
        turn = request.sequences[0].output_length % 3
        beams = [index % max(1, len(candidates) - turn) for index in range(width)]
        picks = [(beam, candidates[beam].token_ids[beams[:place].count(beam)]) for place, beam in enumerate(beams)]
        self.scheduler.branch(request, picks)

    def tables_of(self, request: Request) -> list[list[int]]:
        """The physical blocks of each of the request's sequences."""
        return [sequence.table.blocks for sequence in request.sequences if sequence.table is not None]


def sequence_of(request: Request) -> Sequence:
    """The one sequence of a request."""
    [sequence] = request.sequences
    return sequence
