"""The engine's own scheduler over its own pool, with a simulated model: every token it samples is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from bench.simulation.beams import SimulatedBeams
from bench.simulation.job import Job
from bench.simulation.work import MemoryUse, StepWork
from bench.workloads import HIGHEST_TOKEN, LOWEST_TOKEN, random_tokens
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.model.backend import Candidates, Result
from pagoda_inference.pace import Pace
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.limits import UNLIMITED
from pagoda_inference.scheduling.scheduler import RequestRefused, Scheduler
from pagoda_inference.scheduling.sequence import Request
from pagoda_inference.scheduling.sequence import Sequence as Row
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.scheduling.swapping import PreemptionCost

NO_CANDIDATES = Candidates((), ())


class PagedSystem:
    """``blocks`` blocks of ``block_size`` tokens.

    keep: blocks stay cached for whoever comes back with the same prompt; without it, as in the paper, nothing is found
    again once a request has ended. token_budget, max_running: the scheduler's. limits: what a step may take on.
    accounts: quotas of the tenants; by default every tenant may have all. transfers, preemption: the tiers below.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int = 16,
        *,
        keep: bool = False,
        token_budget: int = 2048,
        max_running: int = 256,
        pace: Pace | None = None,
        accounts: Iterable[Account] = (),
        pool: Pool | None = None,
        transfers: Transfers | None = None,
        preemption: PreemptionCost | None = None,
        seed: int = 20230917,
    ) -> None:
        self.pool = pool or Pool(blocks, block_size, secret=b"simulation")
        self.scheduler = Scheduler(
            self.pool,
            token_budget=token_budget,
            max_running=max_running,
            max_waiting_per_account=1 << 30,
            transfers=transfers,
            cost=preemption,
        )
        if quotas := list(accounts):
            self.scheduler.set_accounts(quotas, 1)
        self._keep = keep
        self._pace = pace
        self._begun = 0.0
        self._rng = random.Random(seed)
        self._jobs: dict[Request, Job] = {}
        self._beams: dict[Request, SimulatedBeams] = {}
        self._step: Step | None = None
        self._ended: list[Job] = []
        """Jobs that ended without a step of theirs."""

    @property
    def running(self) -> int:
        return len(self.scheduler.running)

    @property
    def waiting(self) -> int:
        return len(self.scheduler.waiting)

    def arrive(self, job: Job, now: float) -> None:
        prompt = list(job.tokens) if job.tokens is not None else self._prompt(job.prompt)
        request = Request.create(
            id=str(job.number),
            account=job.tenant,
            scope=f"tenant:{job.tenant}",
            lineage=job.conversation,
            request_class="interactive",
            arrival=job.arrival_s + 1e-9 * job.number,  # no two at once: who is younger decides who gives way
            max_tokens=job.output,
            prompt=prompt,
            sampler=Sampler(),
            samples=job.samples,
            beam_width=job.beam_width,
        )
        request.forgotten = not self._keep
        try:
            self.scheduler.add(request)
        except RequestRefused as refusal:
            job.end_s, job.error = now, refusal.error.code
            return
        self._jobs[request] = job
        if job.beam_width:
            beams = self._beams[request] = SimulatedBeams(job.beam_width, job.output, self._rng)
            request.candidates = beams.candidates_per_beam

    def publish(self, prefix: Sequence[int]) -> None:
        """Have a prefix computed and kept for everybody, from the next step on. Raises ValueError if it cannot be."""
        [publication], _ = self.scheduler.publish([("published", prefix)], 0.0)
        if publication.error:
            raise ValueError(publication.error.message)

    def _prompt(self, length: int) -> list[int]:
        """Of content that nobody else has; where nothing is found again it need not be told apart."""
        return random_tokens(length, self._rng) if self._keep else [_any_token()] * length

    def begin_step(self, now: float) -> StepWork | None:
        limits = self._pace.limits(shared=self.scheduler.shared(now)) if self._pace else UNLIMITED
        self._step = step = self.scheduler.schedule(now, limits)
        self._begun = now
        for request in (*step.exhausted, *step.refused):
            self._end(request, now, error="kv_limit_exceeded")
        return work_of(step, self.pool.block_size) if step.chunks or self._ended else None

    def end_step(self, now: float) -> list[Job]:
        assert self._step is not None
        draw = self._draw_token if self._keep else _any_token
        # A chunk with a capacity is the next token of a sequence that decodes alone.
        if self._pace:
            self._pace.learn(self._step, now - self._begun)
        results = [draw() if chunk.capacity else self._result(chunk, draw) for chunk in self._step.chunks]
        searching: dict[Request, None] = {}  # in an order, so that a seed gives the same run again
        for row, result in self.scheduler.complete(self._step, results, now):
            if result is NO_CANDIDATES:
                searching[row.request] = None
            elif len(row.tokens) - row.prompt_length >= row.request.max_tokens and row.request in self._jobs:
                self._end(row.request, now)  # the others of its answers have the same length
        for request in searching:
            picks = self._beams[request].advance()
            if picks:
                self.scheduler.branch(request, picks)
            else:
                self._end(request, now)
        ended, self._ended = self._ended, []
        return ended

    def _result(self, chunk: ScheduledChunk, draw: Callable[[], int]) -> Result:
        if not chunk.sampled:
            return None
        request = chunk.sequence.request
        if request.candidates:
            return NO_CANDIDATES
        if request.begun or len(request.samplers) == 1:
            return draw()
        return tuple(draw() for _ in request.samplers)

    def _draw_token(self) -> int:
        return self._rng.randrange(LOWEST_TOKEN, HIGHEST_TOKEN)

    def _end(self, request: Request, now: float, error: str = "") -> None:
        job = self._jobs.pop(request)
        self._beams.pop(request, None)
        if job.tokens is not None and self._keep:
            job.answer = request.sequences[0].tokens[request.prompt_length :]
        self.scheduler.finish(request)
        job.first_token_s, job.cached = request.first_token_at, request.cached_tokens
        job.preemptions = request.preemptions
        job.end_s, job.error = now, error
        self._ended.append(job)

    def memory(self) -> MemoryUse:
        tables = self._tables()
        size = self.pool.block_size
        active = sum(ledger.active for ledger in self.pool.accounts) * size
        empty = sum([len(row.table.blocks) * size - row.computed for row in tables if row.table is not None])
        return MemoryUse(active - empty, 0, empty, self.pool.total * size - active)

    def sharing(self) -> tuple[int, int]:
        held = sum(ledger.active for ledger in self.pool.accounts)
        return held, sum([len(row.table.blocks) for row in self._tables() if row.table is not None])

    def _tables(self) -> Sequence[Row]:
        return [row for request in self.scheduler.running for row in request.sequences]


def _any_token() -> int:
    return LOWEST_TOKEN


def work_of(step: Step, block_size: int) -> StepWork:
    """What a step computes and copies, before it has run."""
    work = StepWork(block_size=block_size)
    rows = context = 0
    requests: set[Request] = set()
    for chunk in step.chunks:
        if chunk.sampled:
            requests.add(chunk.sequence.request)
        if chunk.count == 1 and chunk.sampled:
            rows += 1
            context += chunk.start
        else:
            request = chunk.sequence.request
            work.prompt_tokens += chunk.count
            work.prompt_pairs += chunk.count * (chunk.start + chunk.count / 2)
            work.prompt_rows += chunk.sampled and (1 if request.begun else request.width)
        if chunk.copies:
            work.copied_tokens += len(chunk.copies) * block_size
    work.rows, work.context = rows, context
    work.siblings = rows + work.prompt_rows - len(requests)
    return work
