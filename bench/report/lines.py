"""Plots of lines: measured points, a publication's beside them as hollow ones, and named values across the plot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.report import frame
from bench.report.axis import Axis, Scale, axis, check_value, number
from bench.report.clipping import Point, Run, beyond, thinned, touches, within
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
STACKED, MOST_STACKED = 5, 2
"""Pixels by which a triangle stands above another at the same x, and how many do."""
MOST_SERIES = math.lcm(len(SHAPES), len(LIGHT))
MOST_SHAPES = 40
"""A line with more points is drawn without shapes."""
NAME = 11
"""Size of a mark's name."""
CLEAR = 5
"""Pixels between a mark's name and points and lines, which are as thick as shapes."""
PLACES = (1, 0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125)
"""Where along the plot a mark's name may stand, 1 the right end: the first that covers nothing."""


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
    """The SVG. A linear y axis includes 0. ``y_max``: its end; a triangle there stands for each point beyond, with
    a thin line to it from where the line leaves the plot.

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
    parts += _beyond(series, along, up)
    seen = [piece for one in series for points in (one.points, one.paper) for piece in _seen(points, along, up)]
    for mark in marks:
        others = [_across(other, along, up, area) for other in marks if other is not mark]
        parts += _marked(mark, along, up, area, [*seen, *others])
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
    """A series' line and a shape at each point within the axis; the same for the paper's."""
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
    return parts


def _beyond(series: Sequence[Series], along: Axis, up: Axis) -> list[str]:
    """At the end of the axis: what stands for the points beyond it."""
    parts: list[str] = []
    taken: Counter[int] = Counter()
    for place, one in enumerate(series):
        group = []
        for points, label in ((one.points, one.label), (one.paper, f"{one.label}, the paper's")):
            each = len(points) <= MOST_SHAPES and (points is one.paper or not one.dashed)
            for run in beyond(points, along, up):
                group += _gone(run, label, along, up, taken, each=each)
        if group:
            parts += [f'<g class="{_colour(_identity(one, place))}">', *group, "</g>"]
    return parts


def _gone(run: Run, label: str, along: Axis, up: Axis, taken: Counter[int], *, each: bool) -> list[str]:
    """A triangle over ``each`` point's own x, or over the greatest's alone, and a thin line to them from where the line
    leaves the plot. ``taken``: triangles by pixel; those at one x stand upon each other."""
    shown = run.points if each else [max(run.points, key=lambda point: point[1])]
    places = [along.place(x) for x, _ in shown]
    first, last = min(run.begin, run.end, *places), max(run.begin, run.end, *places)
    parts = [rule(first, up.end, last, up.end, "line thin gone")] if last > first else []
    for (x, y), pixel in zip(shown, places, strict=True):
        told = f"{label}: {number(x)}, {number(y)}, beyond the axis"
        if len(shown) < len(run.points):
            told += f", the greatest of {len(run.points)}"
        parts.append(_triangle(pixel, up.end - STACKED * min(taken[round(pixel)], MOST_STACKED), told))
        taken[round(pixel)] += 1
    return parts


def _seen(points: Sequence[Point], along: Axis, up: Axis) -> Iterator[Sequence[Point]]:
    """The pixels of a line's pieces and of its points, as far as they lie within the axis."""
    pixels = thinned([(along.place(x), up.place(y)) for x, y in points])
    yield from within(pixels, up.end)
    yield from ([pixel, pixel] for pixel in pixels if pixel[1] >= up.end)


def _across(mark: Mark, along: Axis, up: Axis, area: frame.Area) -> Sequence[Point]:
    """A mark's line, from end to end."""
    if mark.x is not None:
        return [(along.place(mark.x), area.top), (along.place(mark.x), area.bottom)]
    assert mark.y is not None
    return [(area.left, up.place(mark.y)), (area.right, up.place(mark.y))]


def _marked(mark: Mark, along: Axis, up: Axis, area: frame.Area, others: Sequence[Sequence[Point]]) -> list[str]:
    """A line across the plot, with its name above the plot, or beside the line where it covers least of ``others``."""
    (x, y), end = _across(mark, along, up, area)
    line = rule(x, y, *end, "mark")
    width = width_of(mark.label, NAME)
    if mark.x is not None:
        middle = min(max(x, area.left + width / 2), frame.WIDTH - 4 - width / 2)
        return [line, text(middle, area.top - 5, mark.label, "soft value halo", anchor="middle")]
    room = area.right - area.left - 8 - width
    places = [(area.left + 4 + share * room, base) for share in PLACES for base in (y - 5, y + 13)]
    inside = [place for place in places if area.top <= place[1] - NAME and place[1] + 4 <= area.bottom] or places

    def covered(place: Point) -> int:
        left, base = place
        box = (left - CLEAR, base - NAME + 2 - CLEAR, left + width + CLEAR, base + 2 + CLEAR)
        return sum(touches(other, box) for other in others)

    left, base = min(inside, key=covered)
    return [line, text(left, base, mark.label, "soft value halo")]


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
