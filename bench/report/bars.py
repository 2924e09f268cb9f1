"""Plots of bars, side by side or stacked, each with its value; a publication's beside ours as outlines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.report import frame
from bench.report.axis import Axis, axis, check_value, number
from bench.report.svg import LIGHT, document, escape, rule, text, width_of, wrapped

WIDEST = 46
"""Pixels of the widest column."""
GROUP = 0.82
"""Share of a group's room that its columns take."""
LABEL = 11
"""Size of values' labels."""
LONG_WHISKER = 18
"""Pixels above which a spread has its value's label beside it instead of on top."""
LINES = 3
"""Most lines of a group's name."""
SLANT = 35
"""Degrees by which names are turned that fit no other way."""
SLANT_ACROSS, SLANT_DOWN = math.cos(math.radians(SLANT)), math.sin(math.radians(SLANT))
LONGEST = 190
"""Pixels of the longest slanted name."""


@dataclass(frozen=True)
class BarSeries:
    """A value for each group; None where nothing was measured. ``paper``: what a publication gives for the same.

    ``spread``: the least and the greatest that the value is the middle of, drawn as a line; not where bars are stacked.
    """

    label: str
    values: Sequence[float | None]
    paper: Sequence[float | None] = ()
    spread: Sequence[tuple[float, float] | None] = ()


@dataclass(frozen=True)
class Bar:
    """From ``low`` to ``high`` on the y axis (None: nothing measured), of a series, in a column of a group."""

    group: int
    column: int
    series: int
    low: float
    high: float | None
    paper: bool = False
    spread: tuple[float, float] | None = None


def bars(title: str, y_label: str, groups: Sequence[str], series: Sequence[BarSeries], *, stacked: bool = False) -> str:
    """The SVG. In each group the series stand side by side in their order, or ``stacked`` upwards.

    Raises:
        ValueError: nothing to draw; more than 8 series; a series of another length than the groups; a value without a
            place on the axis, or below 0 in a stack.
    """
    _check(title, groups, series, stacked)
    placed = [*(_stacks(groups, series) if stacked else _columns(groups, series))]
    heights = [bar.high for bar in placed if bar.high is not None]
    heights += [end for one in series for spread in one.spread if spread for end in spread]
    parts, top = frame.heading(title, [*_legend(series)])
    bottom = top + frame.PLOT_HEIGHT
    headroom = 1.0 if stacked else 1.08
    up = axis("linear", [headroom * height for height in heights], bottom, top, zero=True)
    area = frame.Area(frame.beside(up), top, frame.WIDTH - frame.MARGIN, bottom)
    parts += frame.upward(up, area, y_label)
    plot = _Plot(groups, series, stacked, 1 + max(bar.column for bar in placed), up, area)
    for bar in placed:
        parts += plot.draw(bar)
    parts.append(rule(area.left, up.place(0), area.right, up.place(0), "axis"))
    labels, depth = _group_labels(groups, area)
    return document(title, frame.WIDTH, bottom + depth + 4, [*parts, *labels])


def _check(title: str, groups: Sequence[str], series: Sequence[BarSeries], stacked: bool) -> None:
    if len(series) > len(LIGHT):
        raise ValueError(
            f"{title}: {len(series)} series cannot be told apart; draw at most {len(LIGHT)}, the smallest together"
        )
    for one in series:
        _check_values(one.label, one.values, groups, stacked)
        if one.paper:
            _check_values(one.label, one.paper, groups, stacked)
        for end in (0, 1) if one.spread else ():
            _check_values(one.label, [spread and spread[end] for spread in one.spread], groups, stacked)
    if not any(value is not None for one in series for value in (*one.values, *one.paper)):
        raise ValueError(f"{title}: no series has a value; say that nothing was measured instead of drawing it")


def _check_values(label: str, values: Sequence[float | None], groups: Sequence[str], stacked: bool) -> None:
    if len(values) != len(groups):
        raise ValueError(f"{label!r} has {len(values)} values for {len(groups)} groups")
    for group, value in zip(groups, values, strict=True):
        if value is not None and check_value(value, "linear", f"{label!r} of {group!r}") < 0 and stacked:
            raise ValueError(f"{label!r} of {group!r}: {value:g} is below 0 and cannot be stacked")


def _columns(groups: Sequence[str], series: Sequence[BarSeries]) -> Iterator[Bar]:
    """A column for each series, and one beside it where a publication gives values."""
    column = 0
    for place, one in enumerate(series):
        for paper, values in ((False, one.values), (True, one.paper)):
            for group, value in enumerate(values):
                spread = one.spread[group] if one.spread and not paper else None
                if not (paper and value is None):
                    yield Bar(group, column, place, 0.0, value, paper, spread)
            column += bool(values)


def _stacks(groups: Sequence[str], series: Sequence[BarSeries]) -> Iterator[Bar]:
    """Bars upon each other in one column for each group, and a publication's in one beside it."""
    for group in range(len(groups)):
        for column, paper in enumerate((False, True)):
            stack = [one.paper if paper else one.values for one in series]
            low = 0.0
            for place, value in enumerate(values[group] if values else None for values in stack):
                if value is not None:
                    yield Bar(group, column, place, low, low + value, paper)
                    low += value
            if not paper and all(values[group] is None for values in stack):
                yield Bar(group, column, 0, 0.0, None)


def _legend(series: Sequence[BarSeries]) -> Iterator[frame.Entry]:
    box = 'x="4" y="-7" width="18" height="14"'
    for place, one in enumerate(series):
        measured = any(value is not None for value in one.values)
        label = one.label if measured else f"{one.label} (not measured)"
        yield frame.Entry(label, f'<rect class="area c{place}" {box}/>')
    if any(value is not None for one in series for value in one.paper):
        yield frame.Entry("the paper's", f'<rect class="outline neutral" {box}/>')


@dataclass(frozen=True)
class _Plot:
    """What all bars of a plot have in common. ``columns``: in each group."""

    groups: Sequence[str]
    series: Sequence[BarSeries]
    stacked: bool
    columns: int
    up: Axis
    area: frame.Area

    def draw(self, bar: Bar) -> list[str]:
        """The bar and its value, where there is room for it; a dash where nothing was measured."""
        room = (self.area.right - self.area.left) / len(self.groups)
        width = min(WIDEST, GROUP * room / self.columns)
        x = self.area.left + room * (bar.group + 0.5) + width * (bar.column - self.columns / 2)
        whose = self.groups[bar.group] if self.stacked and bar.high is None else self._whose(bar)
        if bar.high is None:
            dash = text(x + width / 2, self.up.place(0) - 4, "–", "soft", anchor="middle")
            return [f'<g class="gap"><title>{escape(whose)}: not measured</title>{dash}</g>']
        value = bar.high - bar.low
        ends = sorted((self.up.place(bar.low), self.up.place(bar.high)))
        gap = min(1.5, width / 10)
        told = f"{whose}: {number(value)}"
        if bar.spread:
            told += f" ({number(bar.spread[0])} to {number(bar.spread[1])})"
        title = f"<title>{escape(told)}</title>"
        box = f'x="{x + gap:.1f}" y="{ends[0]:.1f}" width="{width - 2 * gap:.1f}" height="{ends[1] - ends[0]:.1f}"'
        look = "outline" if bar.paper else "area"
        parts = [f'<rect class="{look} c{bar.series}" {box}>{title}</rect>'] if value else []
        if self.stacked:
            ink = "ink" if bar.paper else f"on{bar.series}"
            return parts + _label_inside(number(value), x + width / 2, width, ends, ink)
        if bar.spread:
            whisker = sorted(self.up.place(end) for end in bar.spread)
            parts.append(_whisker(x + width / 2, min(6.0, width / 4), *whisker))
            if ends[0] - whisker[0] > LONG_WHISKER and value >= 0:
                return [*parts, text(x + width / 2 + 3, ends[0] - 4, number(value), "ink value")]
            ends = [min(ends[0], whisker[0]), max(ends[1], whisker[1])]
        return parts + _label_outside(number(value), x + width / 2, width, ends, value < 0)

    def _whose(self, bar: Bar) -> str:
        return f"{self.series[bar.series].label}, {self.groups[bar.group]}" + (", the paper's" if bar.paper else "")


def _whisker(x: float, half: float, top: float, bottom: float) -> str:
    """A line from the least to the greatest, with an end at each."""
    ends = f"M{x - half:.1f} {top:.1f}h{2 * half:.1f}M{x - half:.1f} {bottom:.1f}h{2 * half:.1f}"
    return f'<path class="whisker" d="M{x:.1f} {top:.1f}V{bottom:.1f}{ends}"/>'


def _label_inside(content: str, x: float, width: float, ends: Sequence[float], ink: str) -> list[str]:
    """In the middle of a stack's bar."""
    if width_of(content, LABEL) > width or ends[1] - ends[0] < LABEL + 2:
        return []
    return [text(x, (ends[0] + ends[1]) / 2 + 4, content, f"value {ink}", anchor="middle")]


def _label_outside(content: str, x: float, width: float, ends: Sequence[float], below: bool) -> list[str]:
    """Above a column (below where it is negative), turned where it is narrow."""
    if width_of(content, LABEL) <= width + 4:
        return [text(x, ends[1] + 13 if below else ends[0] - 4, content, "ink value", anchor="middle")]
    if width < LABEL:
        return []
    y = ends[1] + 5 if below else ends[0] - 5
    return [text(x + 4, y, content, "ink value", anchor="end" if below else "start", turn=-90)]


def _group_labels(groups: Sequence[str], area: frame.Area) -> tuple[list[str], float]:
    """The groups' names and the height they take: in lines; else only some, where they count; else slanted."""
    room = (area.right - area.left) / len(groups)
    middles = [area.left + room * (place + 0.5) for place in range(len(groups))]
    lines = [wrapped(group, room - 8, LABEL + 1) for group in groups]
    if all(len(group) <= LINES and all(width_of(line, LABEL + 1) <= room - 4 for line in group) for group in lines):
        parts = [
            text(x, area.bottom + 18 + 15 * row, line, "soft group", anchor="middle")
            for x, group in zip(middles, lines, strict=True)
            for row, line in enumerate(group)
        ]
        return parts, 18.0 + 15 * max(map(len, lines))
    widest = max(width_of(group, LABEL + 1) for group in groups)
    if room < 16 or all(re.match(r"[\d.,:+-]+\s?\w{0,3}$", group) for group in groups):
        stride = -(-int(widest + 12) // max(1, int(room)))
        shown = list(zip(middles, groups, strict=True))[::stride]
        return [text(x, area.bottom + 18, group, "soft group", anchor="middle") for x, group in shown], 24.0
    cut = [_cut(group, min(LONGEST, (x - LABEL) / SLANT_ACROSS)) for x, group in zip(middles, groups, strict=True)]
    slanted = [
        text(x + 4, area.bottom + 16, group, "soft group", anchor="end", turn=-SLANT)
        for x, group in zip(middles, cut, strict=True)
    ]
    return slanted, 26 + SLANT_DOWN * max(width_of(group, LABEL + 1) for group in cut)


def _cut(content: str, width: float) -> str:
    """As much of it as fits."""
    if width_of(content, LABEL + 1) <= width:
        return content
    kept = content
    while kept and width_of(f"{kept}…", LABEL + 1) > width:
        kept = kept[:-1]
    return f"{kept}…"
