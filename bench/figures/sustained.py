"""The rates that systems sustain on a workload, and the curves that lead there: what figures 12, 14, 16 and 17 plot."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.figures.figure import LATENCY_LIMIT_S, Figure, Number, Sample
from bench.report.plots import Mark, Series, lines
from bench.simulation.job import Job
from bench.simulation.jobs import arriving, pairs
from bench.simulation.loop import Outcome, Window, simulate
from bench.simulation.rates import Runs, highest
from bench.simulation.settings import Setting, System
from bench.simulation.system import ServingSystem
from bench.traces.laws import Workload

AXIS_END_S = 1.0
"""Where the axes of the paper's plots end (s/token): a run that is above it for certain is ended."""
STRIDE, QUICK_STRIDE = 1.12, 1.3
"""Factors between the rates that are tried first: a search begins near its answer, but for a short one's."""
LOWER = (0.4, 0.75)
"""Shares of the sustained rate that are run for the curve alone."""


@dataclass(frozen=True)
class Case:
    """A system on a machine under a workload. samples, beam_width: of every request. start: requests/s near which the
    search begins. longest_s: length of the paper's trace. seeds: how many samples of the workload are searched.
    """

    setting: Setting
    system: System
    workload: Workload
    start: float
    samples: int = 1
    beam_width: int = 0
    longest_s: float = 3600
    seeds: int = 1

    def jobs(self, rate: float, count: int, sample: Sample) -> list[Job]:
        lengths = pairs(self.workload, count, random.Random(sample.seed), sample.traces)
        return arriving(lengths, rate, sample.seed, samples=self.samples, beam_width=self.beam_width)

    def build(self) -> ServingSystem:
        return self.setting.build(self.system, self.workload)


@dataclass(frozen=True)
class Found:
    """rate: requests/s that are sustained; the median of ``rates``, by seed. The rest is of the median's seed.

    points: (requests/s, s/token) of every run that was not lost, by rate. running, saved: of the run at the sustained
    rate, as of ``Outcome``. preempted: how often its measured requests were, on the mean.
    """

    rate: float
    rates: tuple[float, ...]
    points: tuple[tuple[float, float], ...]
    running: float
    saved: float
    preempted: float


def run(sample: Sample, case: Case, rate: float) -> Outcome:
    jobs = case.jobs(rate, sample.warm_up + sample.requests_at(rate, case.longest_s), sample)
    return simulate(case.build(), case.setting.cost(case.system), jobs, Window(sample.warm_up, AXIS_END_S))


def search(sample: Sample, case: Case) -> Found:
    """The rate at which the mean normalised latency is LATENCY_LIMIT_S, of one seed."""
    runs = Runs(partial(run, sample, case), LATENCY_LIMIT_S)
    stride = QUICK_STRIDE if sample.quick else STRIDE
    rate = highest(runs.sustains, start=case.start, tolerance=sample.tolerance, stride=stride)
    best = runs.best
    assert best is not None
    for share in () if sample.quick else LOWER:
        runs.sustains(rate * share)
    preempted = sum(job.preemptions for job in best.jobs) / len(best.jobs)
    return Found(rate, (rate,), tuple(runs.curve), best.running, best.saved, preempted)


def search_all(sample: Sample, cases: Sequence[Case]) -> dict[Case, Found]:
    """Those that take longest begin first, so that the processes end together."""
    cases = sorted(cases, key=lambda case: (case.system is System.PAGED, case.beam_width, case.start), reverse=True)
    seeds = [(case, seed) for case in cases for seed in range(1 if sample.quick else case.seeds)]
    found: dict[Case, list[Found]] = {}
    for (case, _), one in zip(seeds, sample.each(partial(_search_seed, sample), seeds), strict=True):
        found.setdefault(case, []).append(one)
    return {case: _median(of_seeds) for case, of_seeds in found.items()}


def _search_seed(sample: Sample, seed: tuple[Case, int]) -> Found:
    case, number = seed
    return search(dataclasses.replace(sample, seed=sample.seed + number), case)


def _median(found: Sequence[Found]) -> Found:
    middle = sorted(found, key=lambda one: one.rate)[len(found) // 2]
    return dataclasses.replace(middle, rates=tuple(one.rate for one in found))


def ratio(name: str, more: Found, less: Found, goal: str | None = None, paper: float | None = None) -> Number:
    """How many times as much one sustains as the other: the median of the seeds, which both have had alike."""
    ratios = sorted(one / other for one, other in zip(more.rates, less.rates, strict=True))
    note = f"{ratios[0]:.2f} to {ratios[-1]:.2f} by seed" if len(ratios) > 1 else ""
    return Number(name, ratios[len(ratios) // 2], "x", paper, goal, note)


def add_rates(figure: Figure, name: str, found: Mapping[System, Found], goals: Mapping[System, str | None]) -> None:
    """The sustained rates, and how many times as many the paged system sustains.

    name: begins the names of the numbers; may be empty. goals: of the ratios to the others, by system.
    """
    begin = f"{name}." if name else ""
    for system, one in found.items():
        figure.numbers.append(Number(f"{begin}{system.value}.rate", one.rate, "requests/s"))
    for system, goal in goals.items():
        figure.numbers.append(ratio(f"{begin}ratio_{system.value}", found[System.PAGED], found[system], goal))


def plot(title: str, found: Mapping[System, Found]) -> str:
    """Normalised latency over the rate, to the end of the paper's axes."""
    series = [Series(system.title, one.points) for system, one in found.items()]
    mark = Mark("sustained below", y=LATENCY_LIMIT_S)
    return lines(title, "requests/s", "s/token", series, y_max=AXIS_END_S, marks=[mark])
