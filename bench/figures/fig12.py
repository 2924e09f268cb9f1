"""Figure 12: normalised latency by request rate, one answer a request, three models, two workloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures.figure import Figure, Number, Sample
from bench.figures.sustained import Case, Found, add_rates, plot, search_all
from bench.simulation.settings import LARGE, MIDDLE, SMALL, Setting, System
from bench.traces.laws import Workload

SYSTEMS = (System.PAGED, System.ORACLE, System.POW2, System.MAX, System.STATIC)
LONGEST_S = {LARGE: 900.0}
"""The paper's traces are an hour long, OPT-175B's a quarter of one."""


SEEDS = {Workload.SHAREGPT: 3, Workload.ALPACA: 1}
"""Points of ShareGPT's are a thousand or two long requests: rates move by a twentieth with those that are drawn."""


@dataclass(frozen=True)
class Panel:
    """starts: requests/s near which the searches begin, of SYSTEMS. goals: of the ratios to the others."""

    key: str
    setting: Setting
    workload: Workload
    starts: tuple[float, ...]
    goals: dict[System, str | None]


SHAREGPT_GOALS: dict[System, str | None] = {
    System.ORACLE: "1.7..2.7",
    System.POW2: None,
    System.MAX: "2.7..8",
    System.STATIC: "2.7..22",
}
ALPACA_GOALS: dict[System, str | None] = {
    System.ORACLE: ">=1",
    System.POW2: ">=1",
    System.MAX: ">=1",
    System.STATIC: ">=1",
}
COMPUTE_BOUND_GOALS = ALPACA_GOALS | {System.ORACLE: "0.9..1.3", System.POW2: "0.9..1.3"}
"""Figure 12f: the paper calls the advantage "less pronounced", for there the systems compute more than they wait."""

PANELS = (
    Panel("opt13b_sharegpt", SMALL, Workload.SHAREGPT, (1.88, 1.08, 0.84, 0.64, 0.19), SHAREGPT_GOALS),
    Panel("opt66b_sharegpt", MIDDLE, Workload.SHAREGPT, (1.2, 0.55, 0.41, 0.3, 0.117), SHAREGPT_GOALS),
    Panel("opt175b_sharegpt", LARGE, Workload.SHAREGPT, (3.0, 2.33, 1.96, 1.63, 0.127), SHAREGPT_GOALS),
    Panel("opt13b_alpaca", SMALL, Workload.ALPACA, (30.0, 24.5, 18.0, 4.5, 1.34), ALPACA_GOALS),
    Panel("opt66b_alpaca", MIDDLE, Workload.ALPACA, (24.6, 15.6, 10.3, 2.0, 0.78), ALPACA_GOALS),
    Panel("opt175b_alpaca", LARGE, Workload.ALPACA, (23.3, 23.4, 23.0, 11.3, 1.05), COMPUTE_BOUND_GOALS),
)
QUICK_PANELS = (PANELS[0], PANELS[5])


def make(sample: Sample) -> Sequence[Figure]:
    panels = QUICK_PANELS if sample.quick else PANELS
    cases = {
        (panel.key, system): Case(
            panel.setting,
            system,
            panel.workload,
            start,
            longest_s=LONGEST_S.get(panel.setting, 3600),
            seeds=SEEDS[panel.workload],
        )
        for panel in panels
        for system, start in zip(SYSTEMS, panel.starts, strict=True)
    }
    found = search_all(sample, list(cases.values()))
    return [_panel(panel, {system: found[cases[panel.key, system]] for system in SYSTEMS}, sample) for panel in panels]


def _panel(panel: Panel, found: dict[System, Found], sample: Sample) -> Figure:
    figure = Figure(
        f"fig12.{panel.key}",
        f"Normalised latency, {panel.setting.model.name}, {panel.workload.title}",
        f"A rate is sustained below 0.5 s/token. Arrivals of {sample.seconds:g} s, and {sample.requests} requests at "
        f"least, after {sample.warm_up}. Medians of {1 if sample.quick else SEEDS[panel.workload]} samples.",
    )
    add_rates(figure, "", found, panel.goals)
    worst = min(found, key=lambda system: found[system].rate)
    figure.numbers.append(
        Number("static_worst", float(worst is System.STATIC), goal=">=1", note="1 if nothing sustains less")
    )
    figure.numbers.append(Number("paged.batch", found[System.PAGED].running, "requests"))
    figure.numbers.append(Number("oracle.batch", found[System.ORACLE].running, "requests"))
    figure.plots.append((plot(figure.title, found), ""))
    return figure
