"""Figure 17: a chatbot whose prompt is the end of the conversation, of which no KV is kept between rounds; OPT-13B.

The paper says that most of its prompts had all 1,024 tokens, so that a buddy's chunk had room for 1,024 more whatever
was reserved. Where few prompts are that long the three reservations differ: both are run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures.figure import Figure, Number, Sample, within
from bench.figures.sustained import Case, Found, add_rates, plot, ratio, search_all
from bench.simulation.job import Job
from bench.simulation.jobs import arriving, pairs
from bench.simulation.settings import SMALL, System
from bench.traces.laws import LONGEST_ROUND, Workload

SYSTEMS = (System.PAGED, System.ORACLE, System.POW2, System.MAX)
STARTS = {
    False: {System.PAGED: 1.08, System.ORACLE: 0.75, System.POW2: 0.71, System.MAX: 0.63},
    True: {System.PAGED: 0.68, System.ORACLE: 0.535, System.POW2: 0.535, System.MAX: 0.535},
}
SEEDS = 3
RATIO = 2.0
"""The paper's, to each of the three."""


@dataclass(frozen=True)
class ChatbotCase(Case):
    """cut: only rounds whose prompt has all the tokens that it may have."""

    cut: bool = False

    def jobs(self, rate: float, count: int, sample: Sample) -> list[Job]:
        if not self.cut:
            return super().jobs(rate, count, sample)
        rng = random.Random(sample.seed)
        lengths: list[tuple[int, int]] = []
        while len(lengths) < count:
            drawn = pairs(self.workload, count, rng, sample.traces)
            lengths += [pair for pair in drawn if pair[0] == LONGEST_ROUND]
        return arriving(lengths[:count], rate, sample.seed)


def make(sample: Sample) -> Sequence[Figure]:
    kinds = (False,) if sample.quick else (False, True)
    cases = {
        (cut, system): ChatbotCase(SMALL, system, Workload.CHATBOT, STARTS[cut][system], seeds=SEEDS, cut=cut)
        for cut in kinds
        for system in SYSTEMS
    }
    found = search_all(sample, list(cases.values()))
    figure = Figure(
        "fig17",
        "Chatbot, OPT-13B, ShareGPT",
        "Prompts of the last 1,024 tokens of a conversation, answers of at most 1,024. A rate is sustained below 0.5 "
        f"s/token. Arrivals of {sample.seconds:g} s, and {sample.requests} requests at least, after {sample.warm_up}. "
        f"Medians of {1 if sample.quick else SEEDS} samples. `cut`: only rounds whose prompt was cut to 1,024 tokens, "
        "as the paper says most were.",
    )
    for cut in kinds:
        _panel(figure, "cut" if cut else "", {system: found[cases[cut, system]] for system in SYSTEMS})
    lengths = pairs(Workload.CHATBOT, 10_000, random.Random(sample.seed), sample.traces)
    longest = 100 * sum(prompt == LONGEST_ROUND for prompt, _ in lengths) / len(lengths)
    figure.numbers.append(Number("prompts_cut", longest, "%", note="prompts of 1,024 tokens among all"))
    return [figure]


def _panel(figure: Figure, name: str, found: dict[System, Found]) -> None:
    begin = f"{name}." if name else ""
    add_rates(figure, name, found, {})
    for system in SYSTEMS[1:]:
        name = f"{begin}ratio_{system.value}"
        figure.numbers.append(ratio(name, found[System.PAGED], found[system], within(RATIO, 15), RATIO))
    for system in SYSTEMS:
        figure.numbers.append(Number(f"{begin}{system.value}.batch", found[system].running, "requests"))
    figure.plots.append((plot(f"{figure.title}, {'cut' if begin else 'all'} prompts", found), ""))
