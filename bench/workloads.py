"""What the benchmarks send: token lengths from a trace or from the length laws, and the token ids themselves.

The laws match the means of the ShareGPT workload in the PagedAttention paper (figure 11: 161.31 input and 337.99 output
tokens): lognormal(mu 4.16, sigma 1.6634) for the input and Weibull(k 1.1585, scale 361) for the output, redrawn while
input and output together exceed 2,048 tokens.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

LOWEST_TOKEN, HIGHEST_TOKEN = 1000, 40000  # ordinary words in every vocabulary the benchmarks meet


def random_tokens(length: int, rng: random.Random) -> list[int]:
    """``length`` token ids that no other prompt begins with, so that no prefix is ever cached by accident."""
    return [rng.randrange(LOWEST_TOKEN, HIGHEST_TOKEN) for _ in range(length)]


def sharegpt_lengths(count: int, rng: random.Random, traces: Path | None = None) -> list[tuple[int, int]]:
    """(input, output) token lengths of single-turn chats: from a trace in ``traces``, else from the laws."""
    pairs = _trace_pairs(traces) if traces else None
    if pairs:
        return rng.sample(pairs, count)
    return [_draw_pair(rng) for _ in range(count)]


def _draw_pair(rng: random.Random) -> tuple[int, int]:
    while True:
        prompt = max(1, round(rng.lognormvariate(4.16, 1.6634)))
        output = max(1, round(rng.weibullvariate(361, 1.1585)))
        if prompt + output <= 2048:
            return prompt, output


def _trace_pairs(traces: Path) -> list[tuple[int, int]] | None:
    """Pairs of the first CSV file in a folder named after ShareGPT with two columns, input and output."""
    for path in sorted(traces.glob("sharegpt*/*.csv")):
        with path.open(newline="") as file:
            rows = csv.DictReader(file)
            columns = {name.lower(): name for name in rows.fieldnames or ()}
            if len(columns) != 2:
                continue
            prompt = next((columns[name] for name in columns if "input" in name or "prompt" in name), None)
            output = next((columns[name] for name in columns if "output" in name), None)
            if prompt and output:
                return [(int(row[prompt]), int(row[output])) for row in rows]
    return None
