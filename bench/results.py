"""What every benchmark writes: named values with their spread, goals, the machine, the versions, what was skipped."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import operator
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from bench.machine import machine, versions

COMPARISONS = {">=": operator.ge, "<=": operator.le}
LONGEST_PRINTED = 240
"""Characters of a list or an object in the table for people."""


class Results:
    """Collects the results of one run. incomplete: why it did not come to its end, or None. plots: of the report, in
    SVG, each with its caption.
    """

    def __init__(self, benchmark: str) -> None:
        self.benchmark = benchmark
        self.results: list[dict[str, Any]] = []
        self.skipped: list[dict[str, str]] = []
        self.plots: list[tuple[str, str]] = []
        self.incomplete: str | None = "not ended yet"

    def add(
        self,
        name: str,
        samples: Sequence[float] | float,
        *,
        unit: str = "",
        goal: str | None = None,
        paper: float | None = None,
    ) -> float:
        """Record the median of ``samples`` (with minimum, maximum and count). ``goal``: for instance ``>=1.5``, or
        ``28..36``. ``paper``: what the paper has for it.
        """
        values = [samples] if isinstance(samples, int | float) else list(samples)
        result: dict[str, Any] = {"name": name, "value": statistics.median(values)}
        if len(values) > 1:
            result |= {"min": min(values), "max": max(values), "n": len(values)}
        if unit:
            result["unit"] = unit
        if goal is not None:
            result |= {"goal": goal, "ok": reaches(result["value"], goal)}
        if paper is not None:
            result["paper"] = paper
        self.results.append(result)
        return float(result["value"])

    def add_value(self, name: str, value: Any, *, unit: str = "") -> None:
        """Record a list or an object as it is."""
        self.results.append({"name": name, "value": value} | ({"unit": unit} if unit else {}))

    @contextlib.contextmanager
    def keeping(self, name: str, samples: Any) -> Iterator[None]:
        """Record ``samples`` (lists, objects, dataclasses) as they are if what fills them does not come to its end."""
        try:
            yield
        except BaseException:
            self.add_value(f"{name}.unfinished", samples)
            raise

    def skip(self, name: str, why: str) -> None:
        """Say that something could not be run here, instead of inventing a number."""
        self.skipped.append({"name": name, "why": why})

    def to_json(self) -> str:
        document: dict[str, Any] = {
            "benchmark": self.benchmark,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
            "complete": self.incomplete is None,
            "results": self.results,
        }
        if self.incomplete is not None:
            document["incomplete"] = self.incomplete
        if self.skipped:
            document["skipped"] = self.skipped
        return json.dumps(document, indent=2, default=dataclasses.asdict)

    def print_table(self, stream: TextIO) -> None:
        width = max([len(result["name"]) for result in self.results], default=0)
        for result in self.results:
            value = result["value"]
            text = f"{value:10.3f}" if isinstance(value, int | float) else _printed(value)
            spread = f"  {result['min']:.3f} .. {result['max']:.3f} (n={result['n']})" if "n" in result else ""
            paper = f"  paper {result['paper']:g}" if "paper" in result else ""
            goal = f"  goal {result['goal']}: {'met' if result['ok'] else 'MISSED'}" if "goal" in result else ""
            print(f"{result['name']:{width}}  {text} {result.get('unit', '')}{spread}{paper}{goal}", file=stream)
        for skipped in self.skipped:
            print(f"{skipped['name']}: skipped, {skipped['why']}", file=stream)
        if self.incomplete is not None:
            print(f"INCOMPLETE: {self.incomplete}", file=stream)


def _printed(value: Any) -> str:
    """As JSON, and no more of it than a few lines of a terminal."""
    text = json.dumps(value, default=dataclasses.asdict)
    return text if len(text) <= LONGEST_PRINTED else f"{text[:LONGEST_PRINTED]} … (whole in the JSON)"


def reaches(value: float, goal: str) -> bool:
    """Whether a value is as a goal wants it: ``>=1.5``, ``<=1.5``, or between two, ``28..36``."""
    if goal[:2] in COMPARISONS:
        return bool(COMPARISONS[goal[:2]](value, float(goal[2:])))
    least, most = goal.split("..")
    return float(least) <= value <= float(most)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that ``percent`` of 100 do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
