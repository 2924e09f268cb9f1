"""ShareGPT conversations by their lengths: first exchanges as the PagedAttention paper uses them, and whole ones."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

from bench.traces import laws
from bench.traces.errors import TraceMissing
from bench.traces.laws import Workload
from bench.traces.request import TracedRequest
from bench.traces.tables import PAIRS, find, json_lines, rows

FOLDER = "sharegpt_lengths"
PAIR_COLUMNS = ("input_tokens", "output_tokens")
ROUND_COLUMNS = ("conv", "turn", "full_context_tokens", "prompt_tokens_cut1024", "output_tokens_max1024")
MULTITURN_COLUMNS = (PAIRS,)
CLOSE = 0.02
"""A sample whose means are within this share of the paper's is taken as it is."""


def paper_pairs(traces: Path) -> list[tuple[int, int]]:
    """(input, output) tokens of first exchanges whose means are the paper's, 161.31 and 337.99.

    Of the samples in the folder it takes the nearest. One that is more than 2 % off is drawn again, with replacement,
    with weights exp(a * input + b * output) that have the paper's means: the sample that is nearest to it in relative
    entropy. Raises TraceMissing, TraceMalformed.
    """
    samples = [read_pairs(path) for path in find(traces, FOLDER, PAIR_COLUMNS)]
    wanted = laws.PAPER_MEANS[Workload.SHAREGPT]
    nearest = min(filter(None, samples), key=lambda sample: _distance(sample, wanted), default=None)
    if nearest is None:
        raise TraceMissing(f"the samples in {traces / FOLDER} have no rows")
    return nearest if _distance(nearest, wanted) <= CLOSE else calibrated(nearest, wanted, random.Random(20230912))


def read_pairs(path: Path) -> list[tuple[int, int]]:
    return [(row.tokens(PAIR_COLUMNS[0]), row.tokens(PAIR_COLUMNS[1])) for row in rows(path)]


def read_pair_requests(path: Path) -> list[TracedRequest]:
    """The pairs of a file as they are, each a request of its own, without arrivals."""
    return [TracedRequest(0.0, prompt, output) for prompt, output in read_pairs(path)]


def calibrated(
    pairs: Sequence[tuple[int, int]], means: tuple[float, float], rng: random.Random
) -> list[tuple[int, int]]:
    """As many pairs, drawn with weights exp(a * input + b * output) under which the means are ``means``.

    Raises ValueError for means that no weights reach.
    """
    weights = _tilt(pairs, means)
    return rng.choices(pairs, weights=weights, k=len(pairs))


def _tilt(pairs: Sequence[tuple[int, int]], means: tuple[float, float]) -> list[float]:
    """Newton's method on the two slopes, on lengths in units of the means, with steps of at most 1."""
    points = [(prompt / means[0], output / means[1]) for prompt, output in pairs]
    a = b = 0.0
    for _ in range(100):
        exponents = [a * x + b * y for x, y in points]
        highest = max(exponents)
        weights = [math.exp(exponent - highest) for exponent in exponents]
        total = sum(weights)
        x_mean = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
        y_mean = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
        if abs(x_mean - 1) < 1e-6 and abs(y_mean - 1) < 1e-6:
            return weights
        deviations = [(x - x_mean, y - y_mean) for x, y in points]
        xx = sum(w * dx * dx for w, (dx, _) in zip(weights, deviations, strict=True)) / total
        xy = sum(w * dx * dy for w, (dx, dy) in zip(weights, deviations, strict=True)) / total
        yy = sum(w * dy * dy for w, (_, dy) in zip(weights, deviations, strict=True)) / total
        determinant = xx * yy - xy * xy
        if determinant <= 0:
            break
        step_a = (yy * (1 - x_mean) - xy * (1 - y_mean)) / determinant
        step_b = (xx * (1 - y_mean) - xy * (1 - x_mean)) / determinant
        shrink = min(1.0, 1 / max(abs(step_a), abs(step_b), 1e-12))
        a, b = a + shrink * step_a, b + shrink * step_b
    raise ValueError(f"no weights give {len(pairs)} pairs the means {means[0]} and {means[1]}")


def _distance(pairs: Sequence[tuple[int, int]], means: tuple[float, float]) -> float:
    """The greater of the relative differences of the two means."""
    columns = zip(zip(*pairs, strict=True), means, strict=True)
    return max(abs(sum(column) / len(pairs) / mean - 1) for column, mean in columns)


def chatbot_rounds(traces: Path) -> list[TracedRequest]:
    """The rounds of the paper's section 6.5, in the order of the file: prompts cut to the last 1,024 tokens.

    Raises TraceMissing, TraceMalformed.
    """
    return read_rounds(find(traces, FOLDER, ROUND_COLUMNS)[0])


def read_rounds(path: Path) -> list[TracedRequest]:
    """A prompt that was cut begins elsewhere than the one of the round before: it shares no beginning with anything."""
    requests = []
    for number, row in enumerate(rows(path)):
        context, prompt = row.tokens("full_context_tokens"), row.tokens("prompt_tokens_cut1024")
        is_cut = context > prompt
        requests.append(
            TracedRequest(
                at_s=0.0,
                prompt_tokens=prompt,
                output_tokens=row.tokens("output_tokens_max1024"),
                conversation=str(row.tokens("conv")),
                turn=row.tokens("turn"),
                blocks=(number,) if is_cut else (),
                block_tokens=prompt if is_cut else 0,
            )
        )
    return requests


def conversations(traces: Path) -> list[list[tuple[int, int]]]:
    """(user, assistant) tokens of each exchange, conversation by conversation, unclipped: a few have 100,000 tokens.

    Raises TraceMissing, TraceMalformed.
    """
    return read_conversations(find(traces, FOLDER, MULTITURN_COLUMNS)[0])


def read_conversations(path: Path) -> list[list[tuple[int, int]]]:
    read = []
    for line in json_lines(path):
        if not isinstance(line.value, list) or not all(_is_exchange(item) for item in line.value):
            raise line.wrong("not a list of [user tokens, assistant tokens]")
        read.append([(user, assistant) for user, assistant in line.value])
    return read


def _is_exchange(item: object) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(type(part) is int and part >= 0 for part in item)


def read_turns(path: Path) -> list[TracedRequest]:
    """Every turn of every conversation as a request whose prompt is all that went before and the new message."""
    return [
        request for number, turns in enumerate(read_conversations(path)) for request in as_requests(str(number), turns)
    ]


def as_requests(conversation: str, exchanges: Sequence[tuple[int, int]]) -> list[TracedRequest]:
    """One conversation as requests, each with everything before it in its prompt; without arrivals."""
    context, requests = 0, []
    for turn, (user, assistant) in enumerate(exchanges):
        context += user
        requests.append(TracedRequest(0.0, context, assistant, conversation=conversation, turn=turn))
        context += assistant
    return requests
