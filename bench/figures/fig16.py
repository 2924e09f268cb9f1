"""Figure 16: translations after a prefix of examples that all requests begin with; LLaMA-13B.

The paged system publishes the prefix: it is computed once and kept, and every request takes its whole blocks as they
are. Orca computes it for each request and stores it with each.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from bench.figures.figure import Figure, Number, Sample, within
from bench.figures.sustained import Case, add_rates, plot, ratio, search_all
from bench.simulation.job import Job
from bench.simulation.jobs import arriving
from bench.simulation.settings import LLAMA, System
from bench.simulation.system import ServingSystem
from bench.traces import laws
from bench.traces.laws import FIVE_SHOT_PREFIX, ONE_SHOT_PREFIX, Workload
from bench.workloads import random_tokens

SYSTEMS = (System.PAGED, System.ORACLE)
PREFIXES = {"one_shot": ONE_SHOT_PREFIX, "five_shot": FIVE_SHOT_PREFIX}
RATIO = {"one_shot": 1.67, "five_shot": 3.58}
SECONDS = 240
"""Of arrivals: requests are many and short."""
STARTS = {("one_shot", System.PAGED): 50.0, ("one_shot", System.ORACLE): 29.5,
          ("five_shot", System.PAGED): 36.0, ("five_shot", System.ORACLE): 11.5}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PrefixCase(Case):
    """prefix: tokens that every prompt begins with."""

    prefix: int = 0

    def jobs(self, rate: float, count: int, sample: Sample) -> list[Job]:
        rng = random.Random(sample.seed)
        lengths = [laws.draw(self.workload, rng) for _ in range(count)]
        jobs = arriving([(self.prefix + source, output) for source, output in lengths], rate, sample.seed)
        if self.system is System.PAGED:
            prefix = self._prefix()
            for job in jobs:
                job.tokens = prefix + random_tokens(job.prompt - self.prefix, rng)
        return jobs

    def build(self) -> ServingSystem:
        if self.system is not System.PAGED:
            return super().build()
        system = self.setting.paged(keep=True)
        system.publish(self._prefix())
        return system

    def _prefix(self) -> list[int]:
        return random_tokens(self.prefix, random.Random(self.prefix))


def make(sample: Sample) -> Sequence[Figure]:
    names = ("five_shot",) if sample.quick else tuple(PREFIXES)
    if not sample.full:
        sample = dataclasses.replace(sample, seconds=min(sample.seconds, SECONDS))
    cases = {
        (name, system): PrefixCase(
            LLAMA, system, Workload.WMT16, STARTS[name, system], prefix=PREFIXES[name]
        )
        for name in names
        for system in SYSTEMS
    }  # fmt: skip
    found = search_all(sample, list(cases.values()))
    figure = Figure(
        "fig16",
        "Translations with a shared prefix, LLaMA-13B",
        f"Prefixes of {ONE_SHOT_PREFIX} and {FIVE_SHOT_PREFIX} tokens; the lengths of the sentences are an assumption. "
        f"A rate is sustained below 0.5 s/token. Arrivals of {sample.seconds:g} s, and {sample.requests} requests at "
        f"least, after {sample.warm_up}.",
    )
    for name in names:
        panel = {system: found[cases[name, system]] for system in SYSTEMS}
        add_rates(figure, name, panel, {})
        goal = within(RATIO[name], 15)
        figure.numbers.append(
            ratio(f"{name}.ratio_oracle", panel[System.PAGED], panel[System.ORACLE], goal, RATIO[name])
        )
        for system in SYSTEMS:
            figure.numbers.append(Number(f"{name}.{system.value}.batch", panel[system].running, "requests"))
        figure.plots.append((plot(f"LLaMA-13B, a prefix of {PREFIXES[name]} tokens", panel), ""))
    return [figure]
