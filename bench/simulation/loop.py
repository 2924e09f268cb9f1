"""The simulation's clock: jobs arrive, steps run and end, and what happened is measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.simulation.cost_model import StepCost
from bench.simulation.job import Job
from bench.simulation.system import ServingSystem, WakesByItself
from bench.simulation.work import MemoryUse, StepWork

LOOK_EVERY = 64
"""Steps between two looks at whether a run is lost already."""
MEMORY_EVERY = 8
"""Steps between two looks at the memory; they stand for the seconds since the last."""


IDLE = StepWork()


class Stuck(RuntimeError):
    """Jobs wait and the system runs nothing, though none is to come: a fault of the system."""


@dataclass(slots=True)
class Outcome:
    """What was measured after the warm-up. Means over time are weighted by the seconds of each step.

    lost: the run was ended because its mean normalised latency was above the limit already.
    """

    jobs: list[Job]
    seconds: float = 0.0
    steps: int = 0
    running: float = 0.0
    """Mean number of requests that run."""
    waiting: float = 0.0
    memory: MemoryUse = field(default_factory=lambda: MemoryUse(0, 0, 0, 0))
    """Mean use."""
    held: float = 0.0
    held_unshared: float = 0.0
    output_tokens_per_s: float = 0.0
    """Of all answers of a request."""
    lost: bool = False

    @property
    def normalised_latency_s(self) -> float:
        """Mean of the jobs' latency over output length, s/token."""
        return statistics.fmean(job.normalised_latency_s for job in self.jobs if not job.error)

    @property
    def saved(self) -> float:
        """Memory saved by sharing: 1 - held / what would be held without (the paper's Figure 15)."""
        return 1 - self.held / self.held_unshared if self.held_unshared else 0.0


@dataclass(frozen=True)
class Window:
    """Which jobs are measured: the first ``warm_up`` are not. latency_limit_s: a run ends as lost when the mean
    normalised latency of those that are cannot get below it any more.
    """

    warm_up: int = 0
    latency_limit_s: float | None = None


def simulate(
    system: ServingSystem,
    cost: StepCost,
    jobs: Sequence[Job],
    window: Window = Window(),
    observe: Callable[[float, StepWork], None] = lambda now, work: None,
) -> Outcome:
    """Run ``jobs``, which come in the order of their arrival, until all that are measured have ended.

    observe: is told of each step, when it ends. Raises Stuck.
    """
    measured = jobs[window.warm_up :]
    if not measured:
        raise ValueError(f"all {len(jobs)} jobs are warm-up: nothing is left to measure")
    watch = _Watch(measured, window.latency_limit_s)
    meter = _Meter()
    now, arrived = jobs[0].arrival_s, 0
    while watch.open:
        while arrived < len(jobs) and jobs[arrived].arrival_s <= now:
            system.arrive(jobs[arrived], now)
            watch.refused(jobs[arrived])
            arrived += 1
        work = system.begin_step(now)
        if work is None:
            following = _next_event(system, jobs[arrived : arrived + 1])
            if following is None:
                raise Stuck(f"{system.waiting} jobs wait, {system.running} run, and nothing can be done")
            seconds = max(0.0, following - now)
        else:
            seconds = cost.seconds(work)
        if arrived > window.warm_up and (arrived < len(jobs) or system.waiting):
            meter.step(system, work or IDLE, seconds)
        if work is None:
            now += seconds
            continue
        now += seconds
        observe(now, work)
        watch.ended(system.end_step(now))
        if watch.is_lost(now, arrived):
            return meter.outcome(list(measured), lost=True)
    return meter.outcome(list(measured))


def _next_event(system: ServingSystem, arrivals: Sequence[Job]) -> float | None:
    """When something happens though nothing runs: a job arrives, or what the system waits for is there."""
    times = [job.arrival_s for job in arrivals]
    if isinstance(system, WakesByItself) and (wakes := system.wakes_at()) is not None:
        times.append(wakes)
    return min(times, default=None)


class _Watch:
    """Counts the measured jobs that are open, and sees when their mean latency is above the limit for certain."""

    def __init__(self, measured: Sequence[Job], limit_s: float | None) -> None:
        self._measured = measured
        self._limit_s = limit_s
        self._jobs = set(measured)
        self._looks = 0

    @property
    def open(self) -> int:
        return len(self._jobs)

    def refused(self, job: Job) -> None:
        if job.error:
            self._jobs.discard(job)

    def ended(self, jobs: Sequence[Job]) -> None:
        self._jobs.difference_update(jobs)

    def is_lost(self, now: float, arrived: int) -> bool:
        """Those that are open have taken at least as long as they are there."""
        self._looks += 1
        if self._limit_s is None or self._looks % LOOK_EVERY:
            return False
        taken = sum(
            ((now if job.end_s is None else job.end_s) - job.arrival_s) / job.output
            for job in self._measured
            if not job.error and job.arrival_s < now
        )
        return taken > self._limit_s * len(self._measured)


class _Meter:
    """Sums over steps and pauses from the first arrival that is measured to the last, and on while anybody waits."""

    def __init__(self) -> None:
        self._sums = [0.0] * 8
        self._tokens = 0
        self._seconds = self._looked = self._since = 0.0
        self._steps = 0

    def step(self, system: ServingSystem, work: StepWork, seconds: float) -> None:
        self._tokens += work.rows + work.prompt_rows
        self._seconds += seconds
        self._steps += 1
        self._since += seconds
        if self._steps % MEMORY_EVERY:
            return
        use = system.memory()
        values = (
            system.running, system.waiting, use.tokens, use.reservation, use.internal, use.external, *system.sharing()
        )  # fmt: skip
        for index, value in enumerate(values):
            self._sums[index] += self._since * value
        self._looked += self._since
        self._since = 0.0

    def outcome(self, jobs: list[Job], *, lost: bool = False) -> Outcome:
        looked = self._looked or 1.0
        running, waiting, tokens, reservation, internal, external, held, unshared = (s / looked for s in self._sums)
        memory = MemoryUse(tokens, reservation, internal, external)
        rate = self._tokens / (self._seconds or 1.0)
        return Outcome(jobs, self._seconds, self._steps, running, waiting, memory, held, unshared, rate, lost)
