"""What the simulation drives: one interface for the engine's own scheduler and pool and for the paper's baselines."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from bench.simulation.job import Job
from bench.simulation.work import MemoryUse, StepWork


class ServingSystem(Protocol):
    """Takes jobs and runs them step by step. The caller owns the clock: every time is handed in."""

    def arrive(self, job: Job, now: float) -> None:
        """Queue a job. One that can never run ends at once, with ``job.error``."""

    def begin_step(self, now: float) -> StepWork | None:
        """Choose what runs next and give it memory; None where nothing can run until a job arrives."""

    def end_step(self, now: float) -> list[Job]:
        """The step's results are there. Returns the jobs that ended with it."""

    def memory(self) -> MemoryUse:
        """Of the step that was begun last."""

    def sharing(self) -> tuple[int, int]:
        """(blocks or token slots held, the same if no sequence shared any with another), now."""

    @property
    def running(self) -> int:
        """Requests that have memory."""

    @property
    def waiting(self) -> int:
        """Requests that wait for it."""


@runtime_checkable
class WakesByItself(Protocol):
    """A system in which something goes on beside its steps."""

    def wakes_at(self) -> float | None:
        """When it may have something to run again, of itself; None where only an arrival brings that."""
