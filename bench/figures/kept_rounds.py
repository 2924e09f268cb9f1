"""What the paper leaves out of figure 17: KV that is kept between the rounds of a conversation; OPT-13B.

The paper keeps none, for other requests need the room. Here it stays cached in what room there is, and a round finds
what is left of it. A prompt that is cut to its end begins anew with every round: nothing is found of it. The same is
therefore run with whole prompts as well, where a conversation is over when it has filled the model's 2,048 tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.figures.figure import LATENCY_LIMIT_S, Figure, Number, Sample
from bench.figures.sustained import AXIS_END_S, QUICK_STRIDE, STRIDE
from bench.report.plots import BarSeries, bars
from bench.results import percentile
from bench.simulation.conversations import BETWEEN_S, Limits, users_at
from bench.simulation.loop import Outcome, Window, simulate
from bench.simulation.rates import Runs, highest
from bench.simulation.rounds import InRounds
from bench.simulation.settings import LARGE, SMALL, Setting
from bench.traces.laws import LONGEST_ROUND

LIMITS = {"cut": Limits(LONGEST_ROUND, LONGEST_ROUND, 2048), "whole": Limits(2048, LONGEST_ROUND, 2048)}
SETTINGS = {"opt13b": SMALL, "opt175b": LARGE}
STARTS = {("opt13b", "cut"): 1.0, ("opt13b", "whole"): 1.0, ("opt175b", "whole"): 1.9}
MODERATE = 0.5
"""Share of the rate that is sustained without keeping at which both ways are compared."""


@dataclass(frozen=True)
class Case:
    """name: a key of SETTINGS. limits: a key of LIMITS. keep: KV stays cached."""

    name: str
    limits: str
    keep: bool

    @property
    def setting(self) -> Setting:
        return SETTINGS[self.name]


@dataclass(frozen=True)
class Found:
    """rate: sustained, requests/s. Of a run at a moderate rate: mean and 95th percentile of the seconds until the first
    token, share of the prompts' tokens that were found again, s/token.
    """

    rate: float
    ttft_s: float = 0.0
    ttft_p95_s: float = 0.0
    hit: float = 0.0
    latency_s: float = 0.0


def make(sample: Sample) -> Sequence[Figure]:
    kinds = [("opt13b", "whole")] if sample.quick else [("opt13b", "cut"), ("opt13b", "whole"), ("opt175b", "whole")]
    cases = [Case(*kind, keep) for kind in kinds for keep in (False, True)]
    rates = dict(zip(cases, sample.each(partial(_sustained, sample), cases), strict=True))
    moderate = [(case, MODERATE * rates[Case(case.name, case.limits, False)]) for case in cases]
    found = dict(zip(cases, sample.each(partial(_measured, sample, rates), moderate), strict=True))
    figure = Figure(
        "kept",
        "KV kept between the rounds of a conversation, ShareGPT",
        f"Rounds come by a Poisson process; a user says something every {BETWEEN_S:g} s. `cut`: prompts of the last "
        "1,024 tokens, as in figure 17; `whole`: all that was said, up to 2,048 tokens with the answer. A rate is "
        f"sustained below 0.5 s/token. Arrivals of {sample.seconds:g} s, and {sample.requests} requests at least, "
        f"after {sample.warm_up}. Hits and seconds are at {MODERATE:g} of what is sustained without keeping.",
    )
    for name, limits in kinds:
        again, kept = (found[Case(name, limits, keep)] for keep in (False, True))
        _panel(figure, f"{name}_{limits}", again, kept, sample.tolerance)
    ttft = [[found[Case(*kind, keep)].ttft_s for kind in kinds] for keep in (False, True)]
    series = [BarSeries("computed again", ttft[0]), BarSeries("kept", ttft[1])]
    groups = [f"{SETTINGS[name].model.name}, {limits} prompts" for name, limits in kinds]
    figure.plots.append((bars("Seconds until the first token", "s", groups, series), "At the same moderate rate."))
    return [figure]


def _panel(figure: Figure, name: str, again: Found, kept: Found, tolerance: float) -> None:
    """tolerance: to which each of the two rates was found."""
    for way, one in (("again", again), ("kept", kept)):
        figure.numbers += [
            Number(f"{name}.{way}.rate", one.rate, "requests/s"),
            Number(f"{name}.{way}.hit_ratio", one.hit),
            Number(f"{name}.{way}.ttft_s", one.ttft_s, "s"),
            Number(f"{name}.{way}.ttft_p95_s", one.ttft_p95_s, "s"),
            Number(f"{name}.{way}.latency_s", one.latency_s, "s/token"),
        ]
    figure.numbers.append(Number(f"{name}.ratio_rate", kept.rate / again.rate, "x", goal=f">={1 - 2 * tolerance:g}"))
    figure.numbers.append(Number(f"{name}.ratio_ttft", again.ttft_s / kept.ttft_s, "x", goal=">=0.95"))


def _sustained(sample: Sample, case: Case) -> float:
    runs = Runs(partial(_run, sample, case), LATENCY_LIMIT_S)
    stride = QUICK_STRIDE if sample.quick else STRIDE
    return highest(runs.sustains, start=STARTS[case.name, case.limits], tolerance=sample.tolerance, stride=stride)


def _measured(sample: Sample, rates: dict[Case, float], point: tuple[Case, float]) -> Found:
    case, rate = point
    jobs = _run(sample, case, rate, limit_s=None).jobs
    ttft = [(job.first_token_s or job.arrival_s) - job.arrival_s for job in jobs]
    return Found(
        rates[case],
        statistics.fmean(ttft),
        percentile(ttft, 95),
        sum(job.cached for job in jobs) / sum(job.prompt for job in jobs),
        statistics.fmean(job.normalised_latency_s for job in jobs),
    )


def _run(sample: Sample, case: Case, rate: float, limit_s: float | None = AXIS_END_S) -> Outcome:
    users = users_at(rate, LIMITS[case.limits], sample.seed, sample.traces)
    turns, before = users.turns(rate, sample.warm_up + sample.requests_at(rate), sample.seed)
    system = InRounds(case.setting.paged(keep=case.keep), before)
    return simulate(system, case.setting.cost(), turns, Window(sample.warm_up, limit_s))
