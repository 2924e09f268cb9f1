"""Workloads made from laws, in the form of traces."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

from bench.traces import laws
from bench.traces.laws import Workload
from bench.traces.request import TracedRequest


def independent(workload: Workload, count: int, rng: random.Random) -> list[TracedRequest]:
    """``count`` requests that share nothing, with the lengths of a law; without arrivals."""
    return [TracedRequest(0.0, *laws.draw(workload, rng)) for _ in range(count)]


def shared_prefix(count: int, prefix_tokens: int, rng: random.Random) -> list[TracedRequest]:
    """Translations after one prefix of examples that all have in common: figure 16 of the PagedAttention paper."""
    own = itertools.count(1)
    pairs = [laws.draw(Workload.WMT16, rng) for _ in range(count)]
    return [_after_prefix(0, own, prefix_tokens, source, translation) for source, translation in pairs]


def grouped_prefixes(
    rng: random.Random, *, groups: int = 64, each: int = 16, prefix: int = 2048, question: int = 128, output: int = 256
) -> list[TracedRequest]:
    """``groups`` system prompts of ``prefix`` tokens with ``each`` questions, shuffled; a group is a client.

    The defaults are those of SGLang's generated-shared-prefix. A cache without end finds (each - 1) / each of the
    prefixes.
    """
    own = itertools.count(groups)
    requests = [
        dataclasses.replace(_after_prefix(group, own, prefix, question, output), client=f"group-{group}")
        for group in range(groups)
        for _ in range(each)
    ]
    rng.shuffle(requests)
    return requests


def _after_prefix(
    prefix: int, own: Iterator[int], prefix_tokens: int, own_tokens: int, output_tokens: int
) -> TracedRequest:
    """A block is as long as the prefix, so that the first one is the prefix; the others have ids of ``own``."""
    blocks = (prefix, *(next(own) for _ in range(-(-own_tokens // prefix_tokens))))
    return TracedRequest(0.0, prefix_tokens + own_tokens, output_tokens, blocks=blocks, block_tokens=prefix_tokens)
