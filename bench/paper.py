"""The PagedAttention paper (Kwon et al., SOSP 2023, arXiv 2309.06180) reproduced in virtual time: its figures and
Table 1, and what it does not have, on the same workloads.

The engine's own scheduler and pool run against the paper's baselines, and a cost model stands for the model: see
``bench.simulation``. Lengths are those of ``--traces DIR``, or the laws of ``bench.traces.laws``. ``--quick`` is a
sample of about a minute; ``--full`` has the paper's numbers of requests and no bound in time. ``--figures`` picks some.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from bench.figures.figure import Figure, Number, Sample, plain
from bench.progress import progress
from bench.report.page import Cell, Page
from bench.results import Results, reaches
from bench.traces import sharegpt
from bench.traces.errors import TraceMissing

MODULES = (
    "table1", "fig12", "fig13", "fig14", "fig15", "fig16", "fig17", "fig18", "fig19", "kept_rounds", "tiers", "tenancy",
)  # fmt: skip
"""Of ``bench.figures``, in the order of the report."""

LENGTHS: Mapping[str, Callable[[Path], object]] = {
    "sharegpt": sharegpt.paper_pairs,
    "chatbot": sharegpt.chatbot_rounds,
    "conversations": sharegpt.conversations,
}
"""Real lengths that figures are made from where they are at hand."""

QUICK = Sample(requests=200, warm_up=50, seconds=60, tolerance=0.05, quick=True)


def run(results: Results, options: argparse.Namespace) -> None:
    sample = sample_of(options)
    if sample.traces is not None:
        for name, why in missing_lengths(sample.traces).items():
            results.skip(f"paper.traces.{name}", f"{why}; lengths are drawn from the law")
    figures: list[Figure] = []
    seconds: dict[str, float] = {}
    try:
        for name in progress(chosen(options.figures), "paper"):
            begin = time.perf_counter()
            made = import_module(f"bench.figures.{name}").make(sample)
            seconds[name] = round(time.perf_counter() - begin, 1)
            for figure in made:
                record(results, figure)
            figures += made
        results.add_value("paper.seconds", seconds, unit="s")
    finally:
        if options.html and figures:
            write_page(figures, sample, options.html)


def chosen(names: str | None) -> Sequence[str]:
    """Raises SystemExit for a name that is none of MODULES."""
    if names is None:
        return MODULES
    wanted = names.split(",")
    if unknown := [name for name in wanted if name not in MODULES]:
        raise SystemExit(f"--figures {','.join(unknown)}: choose from {', '.join(MODULES)}")
    return wanted


def sample_of(options: argparse.Namespace) -> Sample:
    return dataclasses.replace(QUICK if options.quick else Sample(), traces=options.traces, full=options.full)


def missing_lengths(traces: Path) -> dict[str, str]:
    """What the folder has no real lengths of, and why."""
    why = {}
    for name, read in LENGTHS.items():
        try:
            read(traces)
        except TraceMissing as missing:
            why[name] = str(missing)
    return why


def record(results: Results, figure: Figure) -> None:
    """A result for each number: ``paper.`` figure ``.`` name."""
    for number in figure.numbers:
        name = f"paper.{figure.key}.{number.name}"
        results.add(name, number.value, unit=number.unit, goal=number.goal, paper=number.paper)
    for what, why in figure.skipped:
        results.skip(f"paper.{figure.key}.{what}", why)


def write_page(figures: Sequence[Figure], sample: Sample, path: str) -> None:
    lengths = f"lengths from `{sample.traces.name}`" if sample.traces else "lengths drawn from laws"
    page = Page(
        "The PagedAttention paper, reproduced",
        "Simulated in virtual time: Pagoda's own scheduler and KV pool, and the paper's baselines, over a cost model "
        f"of its machines; {lengths}, {sample.requests} measured requests for a point or more, as each figure says. "
        "`docs/paper.md` says how and why.",
    )
    for figure in figures:
        page.section(f"{figure.title} ({figure.key})", figure.text)
        if figure.numbers:
            page.table(("quantity", "ours", "paper", "goal", ""), [_row(number) for number in figure.numbers])
        for svg, caption in figure.plots:
            page.plot(svg, caption)
    page.write(path)


def _row(number: Number) -> list[Cell]:
    met = reaches(number.value, number.goal) if number.goal else None
    name = f"{number.name}: {number.note}" if number.note else number.name
    return [name, f"{plain(number.value)} {number.unit}".strip(), number.paper, number.goal, met]
