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


@dataclass(frozen=True, slots=True)
class Point:
    """One run. A lost run has no latency: it was above the limit."""

    rate: float
    latency_s: float | None
    outcome: Outcome = field(repr=False)


@dataclass(frozen=True)
class Sustained:
    """rate: requests/s that are sustained; at ``rate`` * (1 + tolerance) they are not. points: every run, by rate."""

    rate: float
    points: list[Point]


def sustained_rate(
    run: Callable[[float], Outcome], *, limit_s: float, start: float, tolerance: float = 0.02
) -> Sustained:
    """Bracket and bisect. run: simulates a rate in requests/s, and may end early as lost above the same limit.

    Raises ValueError where no rate of a plausible size is sustained, or every one is.
    """
    points: dict[float, Point] = {}

    def sustains(rate: float) -> bool:
        outcome = run(rate)
        latency = None if outcome.lost else outcome.normalised_latency_s
        points[rate] = Point(rate, latency, outcome)
        return latency is not None and latency <= limit_s

    rate = highest(sustains, start=start, tolerance=tolerance)
    return Sustained(rate, [points[rate] for rate in sorted(points)])


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
