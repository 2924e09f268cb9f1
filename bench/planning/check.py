"""How right the planner is: its throughput beside the real engine's, on this machine's processor.

Rounds of calibrating and measuring, one after the other, so that a change of the machine's speed meets both. A round's
prediction uses its own calibration, lengths and arrivals, and nothing else of what is measured.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from bench.planning.calibration import calibrate
from bench.planning.card import of_engine, planned_settings
from bench.planning.engine_run import EngineInProcess
from bench.progress import progress
from bench.results import Results
from bench.simulation.demand import Demand
from bench.simulation.job import Job
from bench.simulation.loop import Window
from bench.traces.request import TracedRequest

REQUESTS = 32
LONGEST = 384
"""Tokens of prompt and answer: what two cores compute in a bearable time."""
AT_ONCE = 1e6
"""Requests/s: all are there when the first step begins, so that the rate is the engine's own."""
ROUNDS = 5
GOAL = "0.8..1.2"


def check(results: Results, traces: dict[str, Sequence[TracedRequest]], *, dtype: str, rounds: int) -> None:
    """``plan.check.<trace>.ratio``: predicted over measured output tokens/s, the median of the rounds."""
    settings = dataclasses.replace(planned_settings(dtype, on_cpu=True), pool_tokens=16_384)
    engine = EngineInProcess(settings)
    measured: dict[str, list[float]] = {name: [] for name in traces}
    predicted: dict[str, list[float]] = {name: [] for name in traces}
    try:
        for _ in progress(range(rounds), "plan check"):
            card = of_engine(engine, calibrate(engine))
            for name, trace in traces.items():
                jobs = Demand.of(trace, LONGEST, random.randrange(1 << 30)).jobs(AT_ONCE, REQUESTS)
                copies = [dataclasses.replace(job) for job in jobs]
                measured[name].append(engine.run(jobs).tokens_per_s)
                card.run(copies, Window())
                predicted[name].append(_tokens_per_s(copies))
    finally:
        engine.close()
    for name in traces:
        results.add(f"plan.check.{name}.measured_tok_s", measured[name], unit="tok/s")
        results.add(f"plan.check.{name}.predicted_tok_s", predicted[name], unit="tok/s")
        ratios = [ours / real for ours, real in zip(predicted[name], measured[name], strict=True)]
        results.add(f"plan.check.{name}.ratio", ratios, goal=GOAL)


def _tokens_per_s(jobs: Sequence[Job]) -> float:
    seconds = max(job.end_s or 0.0 for job in jobs) - jobs[0].arrival_s
    return sum(job.output for job in jobs) / seconds
