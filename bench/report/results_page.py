"""A benchmark's results as a page: tables by the parts of their names, and plots of those that belong together."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report.axis import MOST_MAGNITUDE, Scale, exact, number
from bench.report.page import Cell, Page
from bench.report.plots import BarSeries, Series, bars, lines
from bench.results import Results

Result = Mapping[str, Any]

OVERALL = "Overall"
MOST_BARS = 12
MOST_LINES = 8
LEAST_POINTS = 3
LONGEST_VALUE = 600
"""Characters of a list or an object; the JSON has it whole."""


def results_page(results: Results, intro: str) -> Page:
    """``intro``: what the benchmark measures, in paragraphs; names may stand in double backquotes."""
    page = Page(f"Benchmark: {results.benchmark}", intro.replace("``", "`"))
    if results.incomplete is not None:
        page.section("Not complete", f"The benchmark did not come to its end: {results.incomplete}")
    for svg, caption in results.plots:
        page.plot(svg, caption)
    for part, members in _parts(results).items():
        page.section(part)
        _table(page, part, [one for one in members if not _is_inner(one["value"])])
        for svg in _families(part, members):
            page.plot(svg)
        for svg in _side_by_side(part, members):
            page.plot(svg, "Where a value is the median of several, the thin line goes from the least to the greatest.")
        for one in members:
            if _is_inner(one["value"]):
                _inner_table(page, _short(one["name"], part), one["value"], one.get("unit", ""))
    if results.skipped:
        page.section("Not measured")
        page.table(("name", "why"), [(one["name"], one["why"]) for one in results.skipped])
    return page


def _parts(results: Results) -> dict[str, list[Result]]:
    """Results by what stands between the first point and the second of their names; those without, overall."""
    found: dict[str, list[Result]] = {}
    for result in results.results:
        names = _split(result["name"])
        part = re.sub(r"\[.*", "", names[1]) if len(names) > 2 else OVERALL
        found.setdefault(part, []).append(result)
    return found


def _split(name: str) -> list[str]:
    """At points, but for those in square brackets: ``a.b[0.5].c`` is a, b[0.5] and c."""
    return re.split(r"\.(?![^\[]*\])", name)


def _short(name: str, part: str) -> str:
    """A result's name within its part."""
    names = _split(name)
    whole = names[1:] or names
    return ".".join(whole[1:] if len(whole) > 1 and whole[0] == part else whole)


def _table(page: Page, part: str, members: Sequence[Result]) -> None:
    """A row each, with those columns that some member has something for."""
    if not members:
        return
    columns: dict[str, Sequence[Cell]] = {
        "name": [_short(one["name"], part) for one in members],
        "value": [_cell(one["value"]) for one in members],
        "unit": [one.get("unit") for one in members],
        "least to greatest": [
            f"{number(one['min'])} to {number(one['max'])} (n = {one['n']})" if "n" in one else None for one in members
        ],
        "paper": [exact(one["paper"]) if "paper" in one else None for one in members],
        "difference": [one["value"] - one["paper"] if "paper" in one else None for one in members],
        "goal": [one.get("goal") for one in members],
        "": [one.get("ok") for one in members],
    }
    shown = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    page.table(list(shown), list(zip(*shown.values(), strict=True)))


def _inner_table(page: Page, name: str, value: Sequence[Any] | Mapping[str, Any], unit: str) -> None:
    """A list or an object, as a table of its own."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value, 1)
    caption = f"{name} ({unit})" if unit else name
    if value:
        page.table(("", "value"), [(str(key), _cell(one)) for key, one in items], caption)
    else:
        page.table((name,), [("nothing",)])


def _is_inner(value: Any) -> bool:
    return isinstance(value, list | tuple | Mapping)


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, bool):
        return json.dumps(value)  # no goal that was met or missed
    if isinstance(value, int | float | str):
        return value
    text = json.dumps(value, default=dataclasses.asdict)
    return f"`{text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + ' …'}`"


def _families(part: str, members: Sequence[Result]) -> Iterator[str]:
    """A plot of each name with numbers in brackets, such as ``step_ms[16]``, and of each object with numbers as keys.
    Of two numbers, such as ``step_ms[16,512]``, the second tells the lines apart."""
    families: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for one in members:
        unit = one.get("unit", "")
        indexed = re.fullmatch(r"(.*)\[([\d.]+)(?:,([\d.]+))?\](.*)", _short(one["name"], part))
        if indexed and _is_number(one["value"]):
            before, x, second, behind = indexed.groups()
            points = families.setdefault((before + behind, unit), {}).setdefault(second or "", [])
            points.append((float(x), one["value"]))
        elif isinstance(one["value"], Mapping):
            points = [(float(key), value) for key, value in one["value"].items() if _is_point(key, value)]
            families.setdefault((_short(one["name"], part), unit), {})[""] = points
    for (name, unit), by_second in families.items():
        if max(map(len, by_second.values())) < LEAST_POINTS or len(by_second) > MOST_LINES:
            continue
        series = [
            Series(f"{name}[ ,{second}]" if second else name, sorted(points)) for second, points in by_second.items()
        ]
        points = [point for one in series for point in one.points]
        x_scale, y_scale = _scale([x for x, _ in points]), _scale([y for _, y in points])
        if all(x > 0 and math.log2(x).is_integer() for x, _ in points):
            x_scale = "log2"
        yield lines(name, "number in the name", unit or "value", series, x_scale=x_scale, y_scale=y_scale)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST_MAGNITUDE


def _is_point(key: Any, value: Any) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", str(key)) is not None and _is_number(value)


def _scale(values: Sequence[float]) -> Scale:
    """Logarithmic where all values are above 0 and they go over more than a power of ten."""
    return "log" if min(values) > 0 and max(values) / min(values) > 10 else "linear"


def _side_by_side(part: str, members: Sequence[Result]) -> Iterator[str]:
    """Bars for each unit that some members have in common."""
    units: dict[str, list[Result]] = {}
    for one in members:
        if one.get("unit") and _is_number(one["value"]) and "[" not in one["name"]:
            units.setdefault(one["unit"], []).append(one)
    for unit, those in units.items():
        if 2 <= len(those) <= MOST_BARS:
            spread = [(one["min"], one["max"]) if "n" in one else None for one in those]
            paper = [one.get("paper") for one in those]
            values = BarSeries("median", [one["value"] for one in those], paper if any(paper) else (), spread)
            yield bars(f"{part}, {unit}", unit, [_short(one["name"], part) for one in those], [values])


def write_page(results: Results, intro: str, path: Path | str) -> None:
    """The page of ``results``, to a file."""
    results_page(results, intro).write(path)
