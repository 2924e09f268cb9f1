"""How long steps take, followed as they run, and what the next one may therefore take on."""

from __future__ import annotations

from pagoda_inference.rates import Rates
from pagoda_inference.scheduling.limits import UNLIMITED, StepLimits
from pagoda_inference.scheduling.step import Step

FOLLOW = 0.1
"""How much of a new step's slowness is believed."""
SLOWEST, FASTEST = 4.0, 0.25
"""Bounds of what one step can say: the machine may have done something else."""
LEAST_TARGET = 3.5
"""A step's target is never below so many times its fixed part: below that, steps would do little but begin."""
SHARED_TARGET = 1.5
"""Of the time of a short prompt computed alone, the target of a step while tenants share the engine. A request that
comes waits for the step in flight and for its own: two steps, so that it has its first token after three times as
long as alone. A tenant that has the engine to itself gets longer steps and the higher throughput."""


class Pace:
    """The rates measured at start, times how much slower or faster steps have been of late.

    The three rates are never learnt apart: steps that are much alike cannot tell them from one another.

    target_s: most that a step should ever take; 0: no matter, and nothing is limited.
    """

    def __init__(self, target_s: float, rates: Rates) -> None:
        self.target_s = target_s
        self.slowness = 1.0
        self._rates = rates
        self.current = self.limits()
        """What ``limits`` said last."""

    def limits(self, *, shared: bool = False) -> StepLimits:
        """For the next step. ``shared``: another tenant may ask for something while it runs."""
        self.current = self._limits(shared)
        return self.current

    def _limits(self, shared: bool) -> StepLimits:
        if self.target_s <= 0:
            return UNLIMITED
        target = self.target_s
        if shared:
            target = min(target, SHARED_TARGET * self._rates.short_prompt_s)
        base, row, token = (
            self.slowness * rate for rate in (self._rates.base_s, self._rates.row_s, self._rates.token_s)
        )
        return StepLimits(max(target, LEAST_TARGET * base), base, row, token)

    def learn(self, step: Step, seconds: float) -> None:
        """A step took so long."""
        rows = sum(1 for chunk in step.chunks if chunk.sampled)
        tokens = sum(chunk.count for chunk in step.chunks) - rows + step.drafted
        rates = self._rates
        expected = rates.base_s + rates.row_s * rows + rates.token_s * max(0, tokens)
        if expected > 0:
            slowness = min(max(seconds / expected, FASTEST), SLOWEST)
            self.slowness += FOLLOW * (slowness - self.slowness)
