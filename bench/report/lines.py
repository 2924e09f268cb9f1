"""Plots of lines: measured points, a publication's beside them as hollow ones, and named values across the plot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.report import frame
from bench.report.axis import Axis, Scale, axis, check_value, number
from bench.report.clipping import Point, beyond, thinned, within
from bench.report.svg import LIGHT, document, escape, rule, text, width_of

SHAPES = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",
    "M-3.2 -3.2H3.2V3.2H-3.2Z",
    "M0 -4.6L4.6 0L0 4.6L-4.6 0Z",
    "M0 -4.4L4.2 3.2H-4.2Z",
    "M0 4.4L4.2 -3.2H-4.2Z",
    "M-1.5 -4.2H1.5V-1.5H4.2V1.5H1.5V4.2H-1.5V1.5H-4.2V-1.5H-1.5Z",
)
"""Circle, square, diamond, triangles up and down, cross: a series is told by its shape as well as by its colour."""
BEYOND = "M0 -8L5 0H-5Z"
MOST_SERIES = math.lcm(len(SHAPES), len(LIGHT))
MOST_SHAPES = 40
"""A line with more points is drawn without shapes."""


@dataclass(frozen=True)
class Series:
    """A line through ``points`` (x, y), in their order. Without points it stands in the legend as not measured.

    ``paper``: the points that a publication gives for the same. ``colour``: number of a colour, by default the place
    among the series; of a shape, too. ``dashed``: thin, and without shapes (but for a single point).
    """

    label: str
    points: Sequence[Point]
    paper: Sequence[Point] = ()
    colour: int | None = None
    dashed: bool = False


@dataclass(frozen=True)
class Mark:
    """A value with a name, such as a goal or an event: a line across the plot at ``x`` or at ``y``."""

    label: str
    x: float | None = None
    y: float | None = None


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    x_scale: Scale = "linear",
    y_scale: Scale = "linear",
    y_max: float | None = None,
    marks: Sequence[Mark] = (),
) -> str:
    """The SVG. A linear y axis includes 0. ``y_max``: its end; where a line goes beyond, a triangle says how far.

    Raises:
        ValueError: no series has a point; there are more than 24 series; a value has no place on its axis.
    """
    if not any(one.points or one.paper for one in series):
        raise ValueError(f"{title}: no series has a point; say that nothing was measured instead of drawing it")
    if len(series) > MOST_SERIES:
        raise ValueError(f"{title}: {len(series)} lines cannot be told apart; draw at most {MOST_SERIES}")
    _check(series, marks, x_scale, y_scale, y_max)
    points = [point for one in series for point in (*one.points, *one.paper)]
    xs = [x for x, _ in points] + [mark.x for mark in marks if mark.x is not None]
    ys = [y for _, y in points] + [mark.y for mark in marks if mark.y is not None]
    parts, top = frame.heading(title, [*_legend(series, y_max is not None and max(y for _, y in points) > y_max)])
    bottom = top + frame.PLOT_HEIGHT
    up = axis(y_scale, ys, bottom, top, most=y_max, zero=True)
    area = frame.Area(frame.beside(up), top, frame.WIDTH - 2 * frame.MARGIN, bottom)
    along = axis(x_scale, xs, area.left, area.right)
    parts += [*frame.upward(up, area, y_label), *frame.across(along, area, x_label)]
    for place, one in enumerate(series):
        parts += _drawn(one, _identity(one, place), along, up)
    for mark in marks:
        parts += _marked(mark, along, up, area)
    return document(title, frame.WIDTH, bottom + 56, parts)


def distribution(label: str, samples: Sequence[float]) -> Series:
    """How many percent of ``samples`` do not exceed each value, from the least (0) to the greatest (100)."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    points = [(value, 100.0 * index / last if last else 100.0) for index, value in enumerate(ordered)]
    return Series(label, points)


def _check(
    series: Sequence[Series], marks: Sequence[Mark], x_scale: Scale, y_scale: Scale, y_max: float | None
) -> None:
    for one in series:
        for x, y in (*one.points, *one.paper):
            check_value(x, x_scale, f"x of {one.label!r}")
            check_value(y, y_scale, f"{one.label!r} at x = {x:g}")
    for mark in marks:
        if (mark.x is None) == (mark.y is None):
            raise ValueError(f"mark {mark.label!r}: give either x or y")
        if mark.x is not None:
            check_value(mark.x, x_scale, f"mark {mark.label!r}")
        if mark.y is not None:
            check_value(mark.y, y_scale, f"mark {mark.label!r}")
            if y_max is not None and mark.y > y_max:
                raise ValueError(f"mark {mark.label!r}: {mark.y:g} lies beyond the axis, which ends at {y_max:g}")


def _legend(series: Sequence[Series], beyond: bool) -> Iterator[frame.Entry]:
    for place, one in enumerate(series):
        label = one.label if one.points or one.paper else f"{one.label} (not measured)"
        line = f'<path class="line{" thin" if one.dashed else ""}" d="M0 0H{frame.SAMPLE}"/>'
        shape = "" if one.dashed else _shape(_identity(one, place), 13, 0)
        yield frame.Entry(label, f'<g class="{_colour(_identity(one, place))}">{line}{shape}</g>')
    if any(one.paper for one in series):
        line = f'<path class="line thin" d="M0 0H{frame.SAMPLE}"/>'
        yield frame.Entry("the paper's", f'<g class="neutral">{line}{_shape(0, 13, 0, look="point hollow")}</g>')
    if beyond:
        yield frame.Entry("beyond the axis", f'<g class="neutral">{_triangle(13, 4)}</g>')


def _drawn(one: Series, identity: int, along: Axis, up: Axis) -> list[str]:
    """A series' line, a shape at each point, a triangle where it leaves the axis; the same for the paper's."""
    parts = [f'<g class="{_colour(identity)} series" aria-label="{escape(one.label)}">']
    parts += _line(one.points, one.label, identity, along, up, dashed=one.dashed)
    if one.paper:
        parts += _line(one.paper, f"{one.label}, the paper's", identity, along, up, dashed=True, hollow=True)
    return [*parts, "</g>"]


def _line(
    points: Sequence[Point], label: str, identity: int, along: Axis, up: Axis, *, dashed: bool, hollow: bool = False
) -> list[str]:
    pixels = thinned([(along.place(x), up.place(y)) for x, y in points])
    look = "line thin" if dashed else "line"
    parts = [
        f'<polyline class="{look}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in piece)}"/>'
        for piece in within(pixels, up.end)
    ]
    inside = [point for point in points if point[1] <= up.most]
    if len(inside) == 1 or ((hollow or not dashed) and len(points) <= MOST_SHAPES):
        look = "point hollow" if hollow else "point"
        parts += [
            _shape(identity, along.place(x), up.place(y), f"{label}: {number(x)}, {number(y)}", look=look)
            for x, y in inside
        ]
    for x, run in beyond(points, along, up):
        most = max(y for _, y in run)
        what = f"{label}: {len(run)} {'value' if len(run) == 1 else 'values'} beyond the axis, up to {number(most)}"
        parts.append(_triangle(x, up.end, what))
    return parts


def _marked(mark: Mark, along: Axis, up: Axis, area: frame.Area) -> list[str]:
    """A line across the plot, with its name above the plot, or at the right end."""
    if mark.x is not None:
        x = along.place(mark.x)
        half = width_of(mark.label, 11) / 2
        middle = min(max(x, area.left + half), frame.WIDTH - 4 - half)
        return [
            rule(x, area.top, x, area.bottom, "mark"),
            text(middle, area.top - 5, mark.label, "soft value halo", anchor="middle"),
        ]
    assert mark.y is not None
    y = up.place(mark.y)
    return [
        rule(area.left, y, area.right, y, "mark"),
        text(area.right - 4, y - 5, mark.label, "soft value halo", anchor="end"),
    ]


def _identity(one: Series, place: int) -> int:
    return place if one.colour is None else one.colour


def _colour(identity: int) -> str:
    return f"c{identity % len(LIGHT)}"


def _shape(identity: int, x: float, y: float, told: str = "", *, look: str = "point") -> str:
    return _path(look, SHAPES[identity % len(SHAPES)], x, y, told)


def _triangle(x: float, y: float, told: str = "") -> str:
    return _path("point beyond", BEYOND, x, y, told)


def _path(look: str, shape: str, x: float, y: float, told: str) -> str:
    title = f"<title>{escape(told)}</title>" if told else ""
    return f'<path class="{look}" d="{shape}" transform="translate({x:.1f} {y:.1f})">{title}</path>'
