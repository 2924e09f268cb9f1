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

from bench.figures.figure import Figure, Number, Sample
from bench.progress import progress
from bench.report.axis import exact, number
from bench.report.page import Cell, Page
from bench.results import Results, reaches
from bench.traces import sharegpt
from bench.traces.errors import TraceMissing

MODULES = (
    "table1", "fig12", "fig13", "fig14", "fig15", "fig16", "fig17", "fig18", "fig19", "kept_rounds", "tiers", "tenancy",
)  # fmt: skip
"""Of ``bench.figures``, in the order of the report."""

ALSO = {"fig2": "fig13", "kept": "kept_rounds"}
LENGTHS: Mapping[str, Callable[[Path], object]] = {
    "sharegpt": sharegpt.paper_pairs,
    "chatbot": sharegpt.chatbot_rounds,
    "conversations": sharegpt.conversations,
}
"""Real lengths that figures are made from where they are at hand."""

DIGITS = 4
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
    """Raises SystemExit for a name that is none of MODULES. What they are called in reports is known, too: fig13a."""
    if names is None:
        return MODULES
    wanted = [ALSO.get(name, name.rstrip("ab")) for name in names.split(",") if name]
    if unknown := [name for name in wanted if name not in MODULES] or ([] if wanted else ["''"]):
        raise SystemExit(f"--figures {','.join(unknown)}: choose from {', '.join(MODULES)}")
    return list(dict.fromkeys(wanted))


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
    for one in figure.numbers:
        name = f"paper.{figure.key}.{one.name}"
        results.add(name, one.value, unit=one.unit, goal=one.goal, paper=one.paper)
    for what, why in figure.skipped:
        results.skip(f"paper.{figure.key}.{what}", why)


def write_page(figures: Sequence[Figure], sample: Sample, path: str) -> None:
    real = (
        f"ShareGPT's lengths from `{sample.traces.name}` where it has them, the others'" if sample.traces else "lengths"
    )
    quick = (
        " A quick sample: queues do not grow in a minute as they do in a quarter of an hour, so that rates and ratios "
        "are not those of the whole run."
    )
    page = Page(
        "The PagedAttention paper, reproduced",
        "Simulated in virtual time: Pagoda's own scheduler and KV pool, and the paper's baselines, over a cost model "
        f"of its machines; {real} drawn from laws; {sample.requests} measured requests for a point or more, as each "
        f"figure says. `docs/paper.md` says how and why.{quick if sample.quick else ''}",
    )
    for figure in figures:
        page.section(f"{figure.title} ({figure.key})", figure.text)
        if figure.numbers:
            page.table(("quantity", "ours", "paper", "goal", ""), [_row(one) for one in figure.numbers])
        for svg, caption in figure.plots:
            page.plot(svg, caption)
    page.write(path)


def _row(one: Number) -> list[Cell]:
    met = reaches(one.value, one.goal) if one.goal else None
    name = f"{one.name}: {one.note}" if one.note else one.name
    paper = None if one.paper is None else exact(one.paper)
    return [name, f"{number(one.value, DIGITS)} {one.unit}".strip(), paper, one.goal, met]
