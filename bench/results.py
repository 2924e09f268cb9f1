"""What every benchmark writes: named values with their spread, goals, the machine, the versions, what was skipped."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import operator
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

PACKAGES = ("torch", "transformers", "grpcio", "msgspec", "pagoda-chat")
COMPARISONS = {">=": operator.ge, "<=": operator.le}


class Results:
    """Collects the results of one run."""

    def __init__(self, benchmark: str) -> None:
        self.benchmark = benchmark
        self.results: list[dict[str, Any]] = []
        self.skipped: list[dict[str, str]] = []

    def add(self, name: str, samples: Sequence[float] | float, *, unit: str = "", goal: str | None = None) -> float:
        """Record the median of ``samples`` (with minimum, maximum and count). ``goal``: for instance ``>=1.5``."""
        values = [samples] if isinstance(samples, int | float) else list(samples)
        result: dict[str, Any] = {"name": name, "value": statistics.median(values)}
        if len(values) > 1:
            result |= {"min": min(values), "max": max(values), "n": len(values)}
        if unit:
            result["unit"] = unit
        if goal is not None:
            result |= {"goal": goal, "ok": COMPARISONS[goal[:2]](result["value"], float(goal[2:]))}
        self.results.append(result)
        return float(result["value"])

    def add_value(self, name: str, value: Any, *, unit: str = "") -> None:
        """Record a list or an object as it is."""
        self.results.append({"name": name, "value": value} | ({"unit": unit} if unit else {}))

    def skip(self, name: str, why: str) -> None:
        """Say that something could not be run here, instead of inventing a number."""
        self.skipped.append({"name": name, "why": why})

    def to_json(self) -> str:
        document: dict[str, Any] = {
            "benchmark": self.benchmark,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
            "results": self.results,
        }
        if self.skipped:
            document["skipped"] = self.skipped
        return json.dumps(document, indent=2)

    def print_table(self, stream: TextIO) -> None:
        width = max([len(result["name"]) for result in self.results], default=0)
        for result in self.results:
            value = result["value"]
            text = f"{value:10.3f}" if isinstance(value, int | float) else json.dumps(value)
            spread = f"  {result['min']:.3f} .. {result['max']:.3f} (n={result['n']})" if "n" in result else ""
            goal = f"  goal {result['goal']}: {'met' if result['ok'] else 'MISSED'}" if "goal" in result else ""
            print(f"{result['name']:{width}}  {text} {result.get('unit', '')}{spread}{goal}", file=stream)
        for skipped in self.skipped:
            print(f"{skipped['name']}: skipped, {skipped['why']}", file=stream)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that ``percent`` of 100 do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, GPU (None without), memory in GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": _gpu_name(),
        "memory_gib": round(memory / 2**30, 1),
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _gpu_name() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None
