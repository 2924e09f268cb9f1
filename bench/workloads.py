"""What the benchmarks send: token lengths from a trace or from the length laws, and the token ids themselves."""

from __future__ import annotations

import random
from pathlib import Path

from bench.traces import laws, sharegpt
from bench.traces.errors import TraceMissing
from bench.traces.laws import Workload

LOWEST_TOKEN, HIGHEST_TOKEN = 1000, 40000  # ordinary words in every vocabulary the benchmarks meet


def random_tokens(length: int, rng: random.Random) -> list[int]:
    """``length`` token ids that no other prompt begins with, so that no prefix is ever cached by accident."""
    return [rng.randrange(LOWEST_TOKEN, HIGHEST_TOKEN) for _ in range(length)]


def sharegpt_lengths(count: int, rng: random.Random, traces: Path | None = None) -> list[tuple[int, int]]:
    """(input, output) token lengths of single-turn chats: from a trace in ``traces``, else from the laws."""
    if traces is not None:
        try:
            return rng.sample(sharegpt.paper_pairs(traces), count)
        except TraceMissing:
            pass
    return [laws.draw(Workload.SHAREGPT, rng) for _ in range(count)]
