"""The benchmark of the prefix index agrees with a plain LRU cache, whatever the capacity."""

from __future__ import annotations

import argparse
import json
import random
from collections import OrderedDict
from pathlib import Path

import pytest

from bench import prefix_index
from bench.prefix_index import BLOCK_TOKENS, BlockTokens, hit_ratio
from bench.results import Results
from bench.traces.request import TracedRequest


def request_of(tokens: int, blocks: tuple[int, ...]) -> TracedRequest:
    return TracedRequest(0.0, tokens, 1, blocks=blocks, block_tokens=BLOCK_TOKENS)


def trace_of(requests: int, seed: int) -> list[TracedRequest]:
    """Conversations that go on: a prompt is one of before with more blocks, or a new one after a common beginning."""
    rng = random.Random(seed)
    prompts: list[tuple[int, ...]] = [(0,)]
    trace = []
    for number in range(requests):
        begin = rng.choice(prompts) if rng.random() < 0.7 else (0,)
        ids = begin + tuple(1 + 10 * number + offset for offset in range(rng.randint(1, 4)))
        prompts.append(ids)
        trace.append(request_of(len(ids) * BLOCK_TOKENS - rng.randint(1, BLOCK_TOKENS - 1), ids))
    return trace


def lru_ratio(trace: list[TracedRequest], capacity: float) -> float:
    """Full blocks alone, touched tail first once the request is done."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for request in trace:
        full = request.blocks[: request.prompt_tokens // BLOCK_TOKENS]
        hits += next((index for index, id in enumerate(full) if id not in cache), len(full))
        for id in reversed(full):
            cache[id] = None
            cache.move_to_end(id)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits * BLOCK_TOKENS / sum(request.prompt_tokens for request in trace)


def test_without_eviction_it_finds_what_an_lru_cache_finds() -> None:
    trace = trace_of(80, seed=1)
    assert hit_ratio(trace, "inf", BlockTokens()) == pytest.approx(lru_ratio(trace, float("inf")))


@pytest.mark.parametrize("capacity", [40, 80])
def test_with_eviction_it_finds_what_an_lru_cache_finds_but_for_the_partial_block(capacity: int) -> None:
    """While a request runs, its partial block takes room that the plain cache does not need."""
    trace = trace_of(120, seed=2)
    found = hit_ratio(trace, capacity, BlockTokens())
    assert lru_ratio(trace, capacity - 1) <= found <= lru_ratio(trace, capacity)
    assert 0 < found < hit_ratio(trace, "inf", BlockTokens())


def test_a_prompt_larger_than_the_pool_leaves_its_head() -> None:
    long = request_of(8 * BLOCK_TOKENS, tuple(range(8)))
    assert hit_ratio([long, long], 4, BlockTokens()) == pytest.approx(3 / 16)


def test_a_run_compares_with_the_oracle(tmp_path: Path) -> None:
    trace = trace_of(40, seed=3)
    file, oracle = tmp_path / "trace.jsonl", tmp_path / "oracle.json"
    rows = [
        {"timestamp": 0, "input_length": each.prompt_tokens, "output_length": 1, "hash_ids": each.blocks}
        for each in trace
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ratios = {"caps_blocks": [40, "inf"], "token_hit_tailfirst": [lru_ratio(trace, 40), 0.0]}
    oracle.write_text(json.dumps({"a trace": ratios}))
    results = Results("prefix-index")
    prefix_index.run(results, argparse.Namespace(mooncake=file, oracle=oracle, quick=False, repeats=None))
    worst = next(each for each in results.results if each["name"] == "prefix-index.worst_difference")
    assert worst["ok"] is False
    assert worst["value"] == pytest.approx(lru_ratio(trace, float("inf")))
