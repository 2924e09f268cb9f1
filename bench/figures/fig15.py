"""Figure 15: memory saved by sharing blocks among the answers to one prompt, and among the beams of one search.

Saved: 1 - blocks held / blocks that the same sequences would hold without sharing, both on the mean over time. What
samples share is the prompt's full blocks, so that it depends on the lengths alone; what beams share depends on which of
them survive, which is a law here (``bench.simulation.beams``) with constants of a real model (``bench beams``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import pairwise

from bench.figures.figure import Figure, Number, Sample, near
from bench.report.plots import BarSeries, bars
from bench.simulation.hardware import GIB
from bench.simulation.jobs import Pair, arriving, pairs
from bench.simulation.loop import Window, simulate
from bench.simulation.settings import SMALL
from bench.simulation.tiered import HostTier
from bench.traces.laws import Lognormal, Workload

WIDTHS = (2, 4, 6)
PAPER = {"samples": (6.09, 8.53, 9.79), "beams": (37.56, 53.13, 55.16)}
"""Alpaca, by WIDTHS."""
SHAREGPT = {"samples": (16.2, 30.5), "beams": (44.3, 66.3)}
"""Section 6.3 has the least and the greatest: those of 2 and 6."""
RATES = {Workload.ALPACA: 24.0, Workload.SHAREGPT: 1.0}
"""Sequences/s, which with the paper's machine are a good half of what it sustains. What is saved depends on the rate
only where the memory is full: then requests that have just begun, and share most, are a larger part of what runs."""
AUTHORS_RATE = 20.0
"""Requests/s of Alpaca's in the authors' artifact, whatever the width (``experiments/fig15.sh``): more than is served
of 4 and 6 answers. What is preempted goes on where it was, as there: a group of sequences is copied to the host."""
SWAP_SPACE = HostTier(20 * GIB, "swap", as_paper=True)
"""The artifact's default for a GPU."""
SHORTEST, ABOVE = 10, Lognormal(math.log(5.14), 1.089)
"""Alpaca's prompts: 10 tokens and a lognormal number of others. Median 15, 95 % up to 41, 99 % up to 76, mean 19.31; a
real sample has 15, 40, 73 and 19.0, the paper's 19.31. The plain lognormal law has a median of 17, which matters here:
a prompt of 16 tokens has a block to share, one of 15 has none."""
CORRELATION = -0.28
"""Rank correlation of real Alpaca pairs."""


class Pairing(Enum):
    """What Alpaca's lengths are like."""

    MAIN = "saved"
    CORRELATED = "saved_correlated"
    LOGNORMAL = "saved_lognormal"


NOTES = {
    Pairing.CORRELATED: f"prompts and outputs paired with the rank correlation of real ones, {CORRELATION}",
    Pairing.LOGNORMAL: "with the plain lognormal law of prompts",
}
_NAMES = {"samples": "answers to one prompt", "beams": "beams"}
REQUESTS = {(Workload.ALPACA, "samples"): 4}
"""For each that is measured elsewhere."""
QUICK_REQUESTS = {
    (Workload.ALPACA, "samples"): 800,
    (Workload.ALPACA, "beams"): 100,
    (Workload.SHAREGPT, "samples"): 150,
    (Workload.SHAREGPT, "beams"): 30,
}


@dataclass(frozen=True)
class Case:
    workload: Workload
    kind: str
    width: int
    pairing: Pairing = Pairing.MAIN
    authors_rate: bool = False

    @property
    def rate(self) -> float:
        """Requests/s."""
        return AUTHORS_RATE if self.authors_rate else RATES[self.workload] / self.width


def make(sample: Sample) -> Sequence[Figure]:
    cases = [Case(workload, kind, width) for workload in RATES for kind in PAPER for width in WIDTHS]
    if not sample.quick:
        cases += [Case(Workload.ALPACA, "samples", width, pairing) for pairing in NOTES for width in WIDTHS]
        cases += [Case(Workload.ALPACA, kind, width, authors_rate=True) for kind in PAPER for width in WIDTHS]
    saved = dict(zip(cases, sample.each(partial(_run, sample), cases), strict=True))
    return [_figure("fig15a", "samples", saved, sample), _figure("fig15b", "beams", saved, sample)]


def lengths_of(case: Case, count: int, sample: Sample) -> list[Pair]:
    rng = random.Random(sample.seed)
    drawn = pairs(case.workload, count, rng, sample.traces)
    if case.workload is Workload.ALPACA and case.pairing is not Pairing.LOGNORMAL:
        drawn = [(round(SHORTEST + ABOVE.draw(rng)), output) for _, output in drawn]
    return coupled(drawn, CORRELATION, rng) if case.pairing is Pairing.CORRELATED else drawn


def coupled(drawn: Sequence[Pair], correlation: float, rng: random.Random) -> list[Pair]:
    """The same prompts and outputs, paired so that their ranks correlate so much (as two normal variables' do)."""
    normal = 2 * math.sin(math.pi * correlation / 6)
    firsts = [rng.gauss(0, 1) for _ in drawn]
    seconds = [normal * first + math.sqrt(1 - normal**2) * rng.gauss(0, 1) for first in firsts]
    outputs = sorted(output for _, output in drawn)
    prompts = sorted(prompt for prompt, _ in drawn)
    by_first = dict(zip(sorted(range(len(drawn)), key=firsts.__getitem__), prompts, strict=True))
    by_second = dict(zip(sorted(range(len(drawn)), key=seconds.__getitem__), outputs, strict=True))
    return [(by_first[place], by_second[place]) for place in range(len(drawn))]


def _run(sample: Sample, case: Case) -> float:
    """Percent saved."""
    lengths = lengths_of(case, sample.warm_up + _requests(sample, case.workload, case.kind), sample)
    jobs = arriving(
        lengths,
        case.rate,
        sample.seed,
        samples=case.width if case.kind == "samples" else 1,
        beam_width=case.width if case.kind == "beams" else 0,
    )
    system = SMALL.tiered(SWAP_SPACE) if case.authors_rate else SMALL.paged()
    outcome = simulate(system, SMALL.cost(), jobs, Window(sample.warm_up))
    return 100 * outcome.saved


def _requests(sample: Sample, workload: Workload, kind: str) -> int:
    if sample.quick:
        return QUICK_REQUESTS[workload, kind]
    return sample.requests * REQUESTS.get((workload, kind), 1)


def _figure(key: str, kind: str, saved: dict[Case, float], sample: Sample) -> Figure:
    requests = [_requests(sample, workload, kind) for workload in RATES]
    figure = Figure(
        key,
        f"Memory saved by sharing, OPT-13B, {_NAMES[kind]}",
        f"{requests[0]:,} Alpaca requests after {sample.warm_up} at {RATES[Workload.ALPACA]:g} sequences/s, "
        f"and at the authors' {AUTHORS_RATE:g} requests/s, more than is served of 4 and 6 answers, with swap space; "
        f"{requests[1]:,} of ShareGPT at {RATES[Workload.SHAREGPT]:g}.",
    )
    alpaca = [saved[Case(Workload.ALPACA, kind, width)] for width in WIDTHS]
    for width, value, paper in zip(WIDTHS, alpaca, PAPER[kind], strict=True):
        goal = near(paper, 1.3) if kind == "samples" else None
        figure.numbers.append(Number(f"alpaca.{kind}_{width}.saved", value, "%", paper, goal))
    for width, paper in zip(WIDTHS, PAPER[kind], strict=True) if not sample.quick else ():
        value = saved[Case(Workload.ALPACA, kind, width, authors_rate=True)]
        goal = near(paper, 1.3) if kind == "samples" else None
        figure.numbers.append(Number(f"alpaca.{kind}_{width}.saved_at_20", value, "%", paper, goal))
    for pairing, note in NOTES.items() if kind == "samples" and not sample.quick else ():
        for width in WIDTHS:
            value = saved[Case(Workload.ALPACA, kind, width, pairing)]
            figure.numbers.append(Number(f"alpaca.{kind}_{width}.{pairing.value}", value, "%", note=note))
    sharegpt = [saved[Case(Workload.SHAREGPT, kind, width)] for width in WIDTHS]
    ends = dict(zip((WIDTHS[0], WIDTHS[-1]), SHAREGPT[kind], strict=True))
    for width, value in zip(WIDTHS, sharegpt, strict=True):
        goal = near(ends[width], 2) if kind == "samples" and width in ends else None
        figure.numbers.append(Number(f"sharegpt.{kind}_{width}.saved", value, "%", ends.get(width), goal))
    for name, values in (("alpaca", alpaca), ("sharegpt", sharegpt)):
        least = min(after - before for before, after in pairwise(values))
        note = "the least that more of them save more than fewer"
        figure.numbers.append(Number(f"{name}.{kind}.rise", least, "points", goal=">=0", note=note))
    plot = bars(
        figure.title,
        "memory saved (%)",
        [str(width) for width in WIDTHS],
        [
            BarSeries("Alpaca", alpaca, paper=PAPER[kind]),
            BarSeries("ShareGPT", sharegpt, paper=[ends.get(width) for width in WIDTHS]),
        ],
    )
    figure.plots.append((plot, f"By the number of {_NAMES[kind]}. Outlines: the paper's values."))
    return figure
