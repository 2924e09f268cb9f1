"""The requests of a simulation: lengths from a trace or a law, arrivals by a Poisson process at any rate."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

from bench.simulation.job import Job
from bench.traces import laws, sharegpt
from bench.traces.errors import TraceMissing
from bench.traces.laws import Workload

Pair = tuple[int, int]


def pairs(workload: Workload, count: int, rng: random.Random, traces: Path | None = None) -> list[Pair]:
    """(prompt, output) tokens of ``count`` requests: ShareGPT's and the chatbot's drawn from the real ones in
    ``traces`` where they are at hand, the others, and without traces all, from the laws. Output is at least 1.
    """
    real = _real(workload, traces) if traces is not None else None
    drawn = rng.choices(real, k=count) if real else [laws.draw(workload, rng) for _ in range(count)]
    return [(max(1, prompt), max(1, output)) for prompt, output in drawn]


def _real(workload: Workload, traces: Path) -> list[Pair] | None:
    try:
        if workload is Workload.SHAREGPT:
            return sharegpt.paper_pairs(traces)
        if workload is Workload.CHATBOT:
            return [(request.prompt_tokens, request.output_tokens) for request in sharegpt.chatbot_rounds(traces)]
    except TraceMissing:
        pass
    return None


def arriving(lengths: Sequence[Pair], rate: float, seed: int, *, samples: int = 1, beam_width: int = 0) -> list[Job]:
    """Jobs with those lengths, ``rate`` of them a second. The same seed gives the same gaps at every rate, shortened,
    so that rates are compared on the same arrivals.
    """
    rng = random.Random(seed)
    times = itertools.accumulate(rng.expovariate(1.0) / rate for _ in lengths)
    return [
        Job(number, at, prompt, output, samples=samples, beam_width=beam_width)
        for number, (at, (prompt, output)) in enumerate(zip(times, lengths, strict=True))
    ]
