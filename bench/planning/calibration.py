"""The cost of a machine's steps, from a load that has every width and context in it."""

from __future__ import annotations

import random

from bench.planning.engine_run import EngineInProcess
from bench.planning.fitted_cost import FittedCost, Measured, fit
from bench.simulation.job import Job
from bench.workloads import random_tokens

ALONE = 6
"""Prompts that are computed one by one first."""
TOGETHER = 40
"""Requests that come at once, and end one after the other."""
SHORTEST_PROMPT, LONGEST_PROMPT = 8, 512
MOST_OUTPUT = 80
TRIMMED = 0.02
"""Share of the slowest and of the fastest steps, by what the first fit expects, that a second one leaves out: the
machine did something else meanwhile."""


def calibrate(engine: EngineInProcess, seed: int | None = None) -> FittedCost:
    """Takes about 10 seconds with a small model. seed: of contents and lengths; by default another each time."""
    rng = random.Random(seed)
    steps: list[Measured] = []
    for number in range(ALONE):
        share = number / (ALONE - 1)
        prompt = round(SHORTEST_PROMPT * (LONGEST_PROMPT / SHORTEST_PROMPT) ** share)
        steps += engine.run([_job(0, prompt, 8, rng)]).steps
    ladder = [
        _job(number, round(2 ** rng.uniform(3, 9)), round(MOST_OUTPUT * (number + 1) / TOGETHER), rng)
        for number in range(TOGETHER)
    ]
    steps += engine.run(ladder).steps
    first = fit(steps)
    by_error = sorted(steps, key=lambda step: step[1] / first.seconds(step[0]))
    cut = round(len(by_error) * TRIMMED)
    return fit(by_error[cut : len(by_error) - cut])


def _job(number: int, prompt: int, output: int, rng: random.Random) -> Job:
    return Job(number, 0.0, prompt, max(1, output), tenant="calibration", tokens=random_tokens(prompt, rng))
