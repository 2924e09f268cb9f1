"""A tenant's tokens by day as bars: the coordinates of a drawing that needs neither scripts nor inline styles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from pagoda.usage.totals import Total

HEIGHT = 100
STEP, WIDTH = 10, 8
MOST_DAYS = 366
"""More would be thinner than a pixel."""

KINDS = ("computed", "cached", "output")
"""From below: prompt tokens that were computed, those from the cache, and tokens written."""


@dataclass(frozen=True, slots=True)
class Part:
    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """x: of its left edge, in steps of STEP a day. total: what it shows."""

    x: int
    total: Total
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Chart:
    """width, HEIGHT: of the drawing. highest: tokens of the highest bar."""

    bars: list[Bar]
    width: int
    highest: int
    first: date
    last: date


def chart(days: Sequence[Total], first: date, last: date) -> Chart | None:
    """Of these days (UTC, both included); days without records have no bar. None where there is nothing to compare."""
    count = (last - first).days + 1
    highest = max((day.tokens for day in days), default=0)
    if not 2 <= count <= MOST_DAYS or not highest:
        return None
    bars = [Bar((date.fromisoformat(day.name) - first).days * STEP, day, _parts(day, highest)) for day in days]
    return Chart(bars, count * STEP, highest, first, last)


def _parts(day: Total, highest: int) -> list[Part]:
    numbers = (day.prompt_tokens - day.cached_tokens, day.cached_tokens, day.output_tokens)
    parts, floor = [], float(HEIGHT)
    for kind, number in zip(KINDS, numbers, strict=True):
        height = HEIGHT * number / highest
        floor -= height
        parts.append(Part(kind, round(floor, 2), round(height, 2)))
    return parts
