"""Figure 14: several answers to one prompt, and beam search: OPT-13B, Alpaca."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bench.figures.figure import Figure, Number, Sample, within
from bench.figures.sustained import Case, Found, add_rates, plot, ratio, search_all
from bench.simulation.settings import SMALL, System
from bench.traces.laws import Workload

SYSTEMS = (System.PAGED, System.ORACLE, System.POW2, System.MAX)
SECONDS, QUICK_SECONDS = 240, 25
"""Of arrivals: requests are many and short, and beam searches take long to simulate."""
RATIO = {"basic": 1.3, "beam6": 2.3}
"""The paper's ratios to Orca (Oracle), where its text has them."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """starts: requests/s near which the searches begin, of SYSTEMS."""

    key: str
    title: str
    samples: int
    beam_width: int
    starts: tuple[float, ...]


PANELS = (
    Panel("basic", "one answer", 1, 0, (32, 26.0, 18.0, 5.3)),
    Panel("parallel2", "2 parallel answers", 2, 0, (20.0, 15.3, 10.0, 2.6)),
    Panel("parallel4", "4 parallel answers", 4, 0, (10.5, 7.6, 5.0, 0.9)),
    Panel("parallel6", "6 parallel answers", 6, 0, (6.9, 5.0, 3.2, 0.85)),
    Panel("beam2", "beams of width 2", 0, 2, (20.5, 15.2, 10.0, 2.6)),
    Panel("beam4", "beams of width 4", 0, 4, (11.2, 7.5, 5.0, 0.9)),
    Panel("beam6", "beams of width 6", 0, 6, (7.5, 4.9, 3.2, 0.85)),
)
QUICK_PANELS = (PANELS[0], PANELS[1], PANELS[4])


def make(sample: Sample) -> Sequence[Figure]:
    panels = QUICK_PANELS if sample.quick else PANELS
    seconds = min(sample.seconds, QUICK_SECONDS if sample.quick else SECONDS)
    shorter = sample if sample.full else dataclasses.replace(sample, seconds=seconds)
    cases = {
        (panel.key, system): Case(SMALL, system, Workload.ALPACA, start, max(1, panel.samples), panel.beam_width)
        for panel in panels
        for system, start in zip(SYSTEMS, panel.starts, strict=True)
    }
    found = search_all(shorter, list(cases.values()))
    figure = Figure(
        "fig14",
        "Parallel samples and beam search, OPT-13B, Alpaca",
        f"A rate is sustained below 0.5 s/token. Arrivals of {shorter.seconds:g} s, and {shorter.requests} requests at "
        f"least, after {shorter.warm_up}. A beam's next tokens are drawn from a law.",
    )
    for panel in panels:
        _panel(figure, panel, {system: found[cases[panel.key, system]] for system in SYSTEMS})
    return [figure]


def _panel(figure: Figure, panel: Panel, found: dict[System, Found]) -> None:
    paper = RATIO.get(panel.key)
    add_rates(figure, panel.key, found, {System.POW2: ">=1", System.MAX: ">=1"})
    goal = within(paper, 15) if paper else ">=1"
    name = f"{panel.key}.ratio_oracle"
    figure.numbers.append(ratio(name, found[System.PAGED], found[System.ORACLE], goal, paper))
    figure.numbers.append(Number(f"{panel.key}.saved", 100 * found[System.PAGED].saved, "%"))
    figure.plots.append((plot(f"OPT-13B, Alpaca, {panel.title}", found), ""))
