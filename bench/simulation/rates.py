"""The highest request rate that a system sustains: where its normalised latency crosses a limit, by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.simulation.loop import Outcome

STRIDE = 1.25
"""Factor between the rates that are tried until one is sustained and one is not."""
FARTHEST = 1e5
"""How far from the start it is looked for such rates, as a factor."""


@dataclass
class Runs:
    """Runs of a system at rates (requests/s), each by ``run``, which may end early as lost where latency is above
    ``limit_s`` for certain. points: rate -> mean normalised latency (s/token) of those that were not lost. best: of the
    highest rate that was sustained.
    """

    run: Callable[[float], Outcome]
    limit_s: float
    points: dict[float, float] = field(default_factory=dict)
    best: Outcome | None = None

    def sustains(self, rate: float) -> bool:
        """Whether the mean normalised latency is at most the limit."""
        outcome = self.run(rate)
        if outcome.lost:
            return False
        self.points[rate] = outcome.normalised_latency_s
        good = self.points[rate] <= self.limit_s
        if good and rate == max(at for at, latency in self.points.items() if latency <= self.limit_s):
            self.best = outcome
        return good

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Points by rate."""
        return sorted(self.points.items())


def highest(sustains: Callable[[float], bool], *, start: float, tolerance: float, stride: float = STRIDE) -> float:
    """The highest rate that is sustained, found from ``start`` on; at a rate (1 + tolerance) times as high it is not.

    Raises ValueError where no rate of a plausible size is sustained, or every one is.
    """
    low, high = _bracket(sustains, start, stride)
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if sustains(middle) else (low, middle)
    return low


def _bracket(sustains: Callable[[float], bool], start: float, stride: float) -> tuple[float, float]:
    """A rate that is sustained and a higher one that is not."""
    rate = start
    good = sustains(rate)
    while start / FARTHEST < rate < start * FARTHEST:
        other = rate * stride if good else rate / stride
        if sustains(other) != good:
            return (rate, other) if good else (other, rate)
        rate = other
    raise ValueError(f"between {min(start, rate):g} and {max(start, rate):g} requests/s nothing changes")
