"""What of a line can be seen: what lies within the axis, where it leaves it, no more points than pixels show."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.report.axis import Axis

Point = tuple[float, float]

MOST_POINTS = 1500
"""A line with more points is drawn through the first, the least, the greatest and the last of each pixel."""


def within(pixels: Sequence[Point], top: float) -> Iterator[list[Point]]:
    """The pieces of a line that lie below the pixel ``top``, each of two points at least, cut exactly there."""
    piece: list[Point] = []
    for here, there in itertools.pairwise(pixels):
        if here[1] >= top and not piece:
            piece = [here]
        if (here[1] < top) != (there[1] < top):
            piece.append(_crossing(here, there, top))
        if there[1] >= top:
            piece.append(there)
        elif piece:
            yield piece
            piece = []
    if len(piece) > 1:
        yield piece


@dataclass(frozen=True)
class Run:
    """Points beyond the end of the y axis, one after the other. ``begin``, ``end``: the pixels x at which the line
    leaves the plot and comes back, or of the first and the last point where it does not.
    """

    points: Sequence[Point]
    begin: float
    end: float


def beyond(points: Sequence[Point], along: Axis, up: Axis) -> Iterator[Run]:
    """The runs of points beyond the end of the y axis."""
    pixels = [(along.place(x), up.place(y)) for x, y in points]
    for out, indices in itertools.groupby(range(len(points)), key=lambda index: points[index][1] > up.most):
        if not out:
            continue
        run = list(indices)
        first, last = run[0], run[-1]
        begin = _crossing(pixels[first - 1], pixels[first], up.end) if first else pixels[first]
        end = _crossing(pixels[last + 1], pixels[last], up.end) if last + 1 < len(points) else pixels[last]
        yield Run([points[index] for index in run], begin[0], end[0])


def touches(line: Sequence[Point], box: tuple[float, float, float, float]) -> bool:
    """Whether a line has a part in a box (left, top, right, bottom)."""
    return any(_touches(here, there, box) for here, there in itertools.pairwise(line))


def _touches(here: Point, there: Point, box: tuple[float, float, float, float]) -> bool:
    """By the shares of the way at which each pair of the box's sides is passed (Liang and Barsky 1984)."""
    begin, end = 0.0, 1.0
    for axis in (0, 1):
        at, way = here[axis], there[axis] - here[axis]
        low, high = box[axis], box[axis + 2]
        if way == 0:
            if not low <= at <= high:
                return False
            continue
        first, last = sorted(((low - at) / way, (high - at) / way))
        begin, end = max(begin, first), min(end, last)
    return begin <= end


def _crossing(here: Point, there: Point, y: float) -> Point:
    share = (y - here[1]) / (there[1] - here[1])
    return here[0] + share * (there[0] - here[0]), y


def thinned(pixels: Sequence[Point]) -> Sequence[Point]:
    """No more points than can be seen: of those at one pixel the first, the uppermost, the lowest and the last."""
    if len(pixels) <= MOST_POINTS:
        return pixels
    kept: list[Point] = []
    for _, run in itertools.groupby(pixels, key=lambda pixel: round(pixel[0])):
        column = list(run)
        extremes = (
            0,
            min(range(len(column)), key=lambda i: column[i][1]),
            max(range(len(column)), key=lambda i: column[i][1]),
            len(column) - 1,
        )
        kept += [column[index] for index in sorted(set(extremes))]
    return kept
