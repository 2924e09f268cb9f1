"""The daemon's engine in this process: jobs go in, what its steps computed and how long they took comes out."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.planning.fitted_cost import Measured
from bench.simulation.job import Job
from bench.simulation.paged import work_of
from bench.simulation.work import StepWork
from pagoda_inference.daemon import load
from pagoda_inference.engine import Outcome
from pagoda_inference.generation_store import GenerationStore
from pagoda_inference.metrics import Metrics
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import Delta, Error, Finished, Generate, ModelInfo, Sampling
from pagoda_inference.scheduling.limits import UNLIMITED, StepLimits
from pagoda_inference.scheduling.step import Step
from pagoda_inference.settings import Settings


@dataclass
class EngineRun:
    """seconds: from the first arrival to the last end. steps: in order, each with its seconds, the engine's own work
    beside the model among them.
    """

    seconds: float
    output_tokens: int
    cached_tokens: int
    steps: list[Measured] = field(repr=False)

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens / self.seconds


class EngineInProcess:
    """Loaded once; each ``run`` finds it idle, with whatever earlier runs left in its cache."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._store = GenerationStore(max_bytes=1 << 40)
        self._loaded = load(settings, self._deliver, Metrics())
        self._ids = itertools.count()
        self._open: dict[str, Job] = {}
        self._errors: list[Error] = []
        self._begin = 0.0
        self._work: StepWork | None = None
        self._steps: list[Measured] = []
        engine = self._loaded.engine
        schedule = engine._scheduler.schedule

        def scheduled(now: float, limits: StepLimits = UNLIMITED) -> Step:
            step = schedule(now, limits)
            self._work = work_of(step, self._loaded.info.block_size)
            return step

        engine._scheduler.schedule = scheduled  # type: ignore[method-assign]
        engine._observer.step = self._took

    @property
    def info(self) -> ModelInfo:
        return self._loaded.info

    def run(self, jobs: Sequence[Job]) -> EngineRun:
        """Submit each job at its arrival, in seconds from now, and work until all have ended. Their times are filled
        in. Raises RuntimeError where the engine refuses one or fails.
        """
        self._steps, self._errors = [], []
        waiting = list(reversed(jobs))
        gc.collect()
        gc.freeze()  # as the daemon does
        self._begin = time.monotonic()
        try:
            while waiting or self._open:
                now = time.monotonic() - self._begin
                while waiting and waiting[-1].arrival_s <= now:
                    self._submit(waiting.pop())
                if self._open:
                    self._loaded.engine.turn()
                else:
                    time.sleep(max(0.0, waiting[-1].arrival_s - now))
                if self._errors:
                    raise RuntimeError(f"the engine refused a request: {self._errors[0].message}")
        finally:
            gc.unfreeze()
        seconds = max(job.end_s or 0.0 for job in jobs) - jobs[0].arrival_s
        return EngineRun(seconds, sum(job.output for job in jobs), sum(job.cached for job in jobs), self._steps)

    def close(self) -> None:
        self._loaded.engine.close()

    def _submit(self, job: Job) -> None:
        assert job.tokens is not None
        info = self._loaded.info
        command = Generate(
            id=f"job-{next(self._ids)}",
            account=job.tenant,
            scope=f"tenant:{job.tenant}",
            lineage=job.conversation,
            prompt_token_ids=tuple(job.tokens),
            sampling=Sampling(temperature=0.0, max_tokens=job.output, ignore_eos=True),
            request_class="api",
        )
        log = self._store.create((job.tenant, command.id))
        self._open[command.id] = job
        self._loaded.engine.submit(
            prepare(
                command,
                log,
                self._loaded.tokenizer,
                context_length=info.context_length,
                vocabulary_size=info.vocabulary_size,
            )
        )

    def _deliver(self, outcomes: list[Outcome]) -> None:
        now = time.monotonic() - self._begin
        for log, event in outcomes:
            job = self._open.get(log.key[1])
            if job is None:
                continue
            if isinstance(event, Error):
                self._errors.append(event)
            elif isinstance(event, Finished):
                if event.error is not None:
                    self._errors.append(event.error)
                job.end_s, job.cached = now, event.usage.cached_tokens
                job.preemptions = event.usage.preemptions
                del self._open[log.key[1]]
            elif isinstance(event, Delta) and job.first_token_s is None:
                job.first_token_s = now

    def _took(self, step: Step, seconds: float) -> None:
        assert self._work is not None
        self._steps.append((self._work, seconds))
