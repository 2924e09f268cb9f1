"""What all plots have around their data: title, legend, axes and grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report.axis import Axis
from bench.report.svg import rule, text, width_of, wrapped

WIDTH = 760
PLOT_HEIGHT = 310
MARGIN = 16
SAMPLE = 26
"""Width of a legend's sample."""
ROW = 21
BOLD = 1.1
"""Width of bold text over that of other text."""


@dataclass(frozen=True)
class Area:
    """The rectangle of the data, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Entry:
    """A line of the legend. ``sample``: elements drawn around (0, 0), 26 pixels wide, the left end at 0."""

    label: str
    sample: str


def heading(title: str, entries: Sequence[Entry]) -> tuple[list[str], float]:
    """Title and legend, in as many rows as they need, and the pixel below them. One named as the plot is left out."""
    y = 24.0
    parts = []
    for line in wrapped(title, WIDTH - 2 * MARGIN, BOLD * 15):
        parts.append(text(MARGIN, y, line, "ink head"))
        y += 20
    if [entry.label for entry in entries] == [title]:
        entries = []
    x, y = float(MARGIN), y + 4
    for entry in entries:
        width = SAMPLE + 7 + width_of(entry.label)
        if x > MARGIN and x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + ROW
        parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{entry.sample}</g>')
        parts.append(text(x + SAMPLE + 7, y + 4.5, entry.label, "ink"))
        x += width + 20
    return parts, y + (24 if entries else 4)


def beside(up: Axis) -> float:
    """The pixel at which the data begin: right of the y axis's label and ticks."""
    return MARGIN + 22 + max(width_of(label) for label in up.labels())


def upward(up: Axis, area: Area, label: str) -> list[str]:
    """The y axis: its ticks, a line of the grid at each, and its label, from below to above."""
    parts = []
    for tick, content in zip(up.ticks, up.labels(), strict=True):
        y = up.place(tick)
        parts.append(rule(area.left, y, area.right, y))
        parts.append(text(area.left - 8, y + 4.5, content, "soft y-tick", anchor="end"))
    middle = (area.top + area.bottom) / 2
    return [*parts, text(MARGIN + 6, middle, label, "ink", anchor="middle", turn=-90)]


def across(along: Axis, area: Area, label: str) -> list[str]:
    """The x axis: its ticks, a line of the grid at each, and its label."""
    parts = []
    for tick, content in zip(along.ticks, along.labels(), strict=True):
        x = along.place(tick)
        parts.append(rule(x, area.top, x, area.bottom))
        parts.append(text(x, area.bottom + 19, content, "soft x-tick", anchor="middle"))
    return [*parts, text((area.left + area.right) / 2, area.bottom + 42, label, "ink", anchor="middle")]
