"""What of a line can be seen: what lies within the axis, where it leaves it, no more points than pixels show."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

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


def beyond(points: Sequence[Point], along: Axis, up: Axis) -> Iterator[tuple[float, list[Point]]]:
    """Runs of points beyond the end of the y axis, each with the pixel x at which the line gets there."""
    before: Point | None = None
    run: list[Point] = []
    x = 0.0
    for point in points:
        if point[1] > up.most:
            pixel = (along.place(point[0]), up.place(point[1]))
            if not run:
                x = pixel[0] if before is None else _crossing(before, pixel, up.end)[0]
            run.append(point)
            continue
        if run:
            yield x, run
            run = []
        before = (along.place(point[0]), up.place(point[1]))
    if run:
        yield x, run


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
