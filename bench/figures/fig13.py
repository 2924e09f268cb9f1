"""Figures 2 and 13: how full the memory is, and how many requests run in it, when there are more than it can take.

Figure 13a: OPT-13B with ShareGPT lengths at 2 requests/s, figure 13b with Alpaca's at 30. Figure 2: what the slots
hold, on the mean over time, with ShareGPT's at 4, which is more than any system can take. What is metered begins with
the first request after the warm-up, and ends when nobody waits any more after the last arrival.

A mean over a thousand requests depends on which requests they are: the Orca systems run 7 to 75 at a time, and one that
is as long as 20 others holds a place for as long. So each is run for several times as many, with three seeds.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.figures.figure import Figure, Number, Sample, near, within
from bench.report.plots import BarSeries, bars
from bench.simulation.jobs import arriving, pairs
from bench.simulation.loop import Outcome, Window, simulate
from bench.simulation.settings import SMALL, System
from bench.traces.laws import Workload

SYSTEMS = (System.MAX, System.POW2, System.ORACLE, System.PAGED)
WARM_UP = 500
KINDS = ("token", "reservation", "internal", "external")
SHARES: dict[System, tuple[float | None, ...]] = {
    System.MAX: (20.4, 13.3, 57.3, 8.9),
    System.POW2: (26.8, 17.9, 13.6, 41.6),
    System.ORACLE: (38.2, 25.2, 0.0, 36.6),
    System.PAGED: (96.3, None, None, None),
}
"""Percent, by KINDS; None: not printed."""


SEEDS = 3
HOUR_S = 3600
QUICK_REQUESTS = 2_500


@dataclass(frozen=True)
class Load:
    """rate: requests/s. seconds: of arrivals."""

    workload: Workload
    rate: float
    seconds: float


MEMORY = Load(Workload.SHAREGPT, 4.0, 900.0)
"""Rate and length are those of the authors' artifact (``experiments/fig2.sh``)."""
SHAREGPT = Load(Workload.SHAREGPT, 2.0, HOUR_S)
"""The paper's hour, in which Pagoda's queue, too, is there most of the time."""
ALPACA = Load(Workload.ALPACA, 30.0, 300.0)
"""The Orca systems' queues are long at once."""
LOADS = (MEMORY, SHAREGPT, ALPACA)
BATCHED = {
    SHAREGPT: {System.MAX: 7.00, System.POW2: 9.81, System.ORACLE: 13.62, System.PAGED: 30.42},
    ALPACA: {System.MAX: 7.00, System.POW2: 43.24, System.ORACLE: 72.75, System.PAGED: 132.44},
}

Runs = dict[tuple[Load, System], list[Outcome]]
"""One outcome of each seed."""


@dataclass(frozen=True)
class Case:
    load: Load
    system: System
    requests: int
    seed: int


def make(sample: Sample) -> Sequence[Figure]:
    cases = [
        Case(load, system, _requests(sample, load, system), sample.seed + seed)
        for load in LOADS
        for system in SYSTEMS
        for seed in range(_seeds(sample, load, system))
    ]
    runs: Runs = {}
    for case, outcome in zip(cases, sample.each(partial(_run, sample), cases), strict=True):
        runs.setdefault((case.load, case.system), []).append(outcome)
    return [
        _memory(runs, sample),
        _batched("fig13a", SHAREGPT, runs, sample),
        _batched("fig13b", ALPACA, runs, sample),
    ]


def _is_calibrated(load: Load, system: System) -> bool:
    """The point that the host's work for a sequence is calibrated on: an hour of arrivals, as the paper's trace."""
    return load is ALPACA and system is System.PAGED


def _requests(sample: Sample, load: Load, system: System) -> int:
    if sample.quick and load is not SHAREGPT:  # whose goals are the closest
        return QUICK_REQUESTS
    seconds = HOUR_S if _is_calibrated(load, system) else load.seconds
    return max(sample.requests, round(load.rate * seconds))


def _seeds(sample: Sample, load: Load, system: System) -> int:
    return 1 if _is_calibrated(load, system) else SEEDS


def _run(sample: Sample, case: Case) -> Outcome:
    lengths = pairs(case.load.workload, WARM_UP + case.requests, random.Random(case.seed), sample.traces)
    jobs = arriving(lengths, case.load.rate, case.seed)
    outcome = simulate(SMALL.build(case.system), SMALL.cost(), jobs, Window(WARM_UP))
    outcome.jobs.clear()  # it crosses from a process to another
    return outcome


def _goal(load: Load, system: System) -> str | None:
    if load is SHAREGPT:
        return "28..36" if system is System.PAGED else within(BATCHED[load][system], 2)
    return None if system is System.PAGED else within(BATCHED[load][system], 8)


def _batched(key: str, load: Load, runs: Runs, sample: Sample) -> Figure:
    requests, seeds = _requests(sample, load, System.MAX), _seeds(sample, load, System.MAX)
    figure = Figure(
        key,
        f"Batched requests, OPT-13B, {load.workload.title} at {load.rate:g} requests/s",
        f"Mean number of running requests over time, of {seeds} run{'s' * (seeds > 1)} of {requests:,} "
        f"requests after {WARM_UP}. The Orca systems cannot keep up with the rate and always have requests waiting.",
    )
    if load is ALPACA:
        figure.text += (
            " Pagoda keeps up, with a batch that depends on how long a step takes. This point of the paper's is what "
            "the host's work for each sequence is calibrated on, over an hour of arrivals; it shows nothing by itself: "
            f"here over {_requests(sample, load, System.PAGED):,} requests."
        )
    for system in SYSTEMS:
        values = [outcome.running for outcome in runs[load, system]]
        paper, goal = BATCHED[load][system], _goal(load, system)
        note = f"{min(values):.4g} to {max(values):.4g} by seed" if len(values) > 1 else ""
        if _is_calibrated(load, system):
            note = "calibrated on"
        figure.numbers.append(Number(f"{system.value}.batch", statistics.fmean(values), "requests", paper, goal, note))
    figure.plots.append((
        bars(
            figure.title,
            "batched requests",
            [system.title for system in SYSTEMS],
            [BarSeries("ours", [number.value for number in figure.numbers], paper=list(BATCHED[load].values()))],
        ),
        "Outlines: the paper's values.",
    ))  # fmt: skip
    return figure


def _memory(runs: Runs, sample: Sample) -> Figure:
    requests, seeds = _requests(sample, MEMORY, System.MAX), _seeds(sample, MEMORY, System.MAX)
    figure = Figure(
        "fig2",
        "What the KV memory holds, OPT-13B, ShareGPT",
        f"Mean shares over time of {SMALL.slots:,} token slots while requests wait, {MEMORY.rate:g} of which come in a "
        f"second: {seeds} run{'s' * (seeds > 1)} of {requests:,} requests after {WARM_UP}. What a chunk of the buddy "
        "allocator is larger than was asked for counts as external, with what is free.",
    )
    shares: dict[System, list[float]] = {}
    for system in SYSTEMS:
        uses = [outcome.memory for outcome in runs[MEMORY, system]]
        kinds = [(use.tokens, use.reservation, use.internal, use.external) for use in uses]
        shares[system] = [100 * statistics.fmean(one[place] / sum(one) for one in kinds) for place in range(len(KINDS))]
        for kind, value, paper in zip(KINDS, shares[system], SHARES[system], strict=True):
            goal = None if paper is None else near(paper, 2.5)
            figure.numbers.append(Number(f"{system.value}.{kind}", value, "%", paper, goal))
    series = [
        BarSeries(
            kind,
            [shares[system][place] for system in SYSTEMS],
            paper=[SHARES[system][place] for system in SYSTEMS],
        )
        for place, kind in enumerate(KINDS)
    ]
    stacked = bars(figure.title, "% of the slots", [system.title for system in SYSTEMS], series, stacked=True)
    figure.plots.append((stacked, "Each bar is the whole KV memory; beside it as outlines the paper's."))
    return figure
