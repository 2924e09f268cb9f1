"""Token hit ratio of the prefix index on a Mooncake trace, by capacity: the real pool, blocks of 512 tokens.

A trace has a line of JSON per request: ``timestamp``, ``input_length``, ``output_length``, ``hash_ids`` of its
512-token blocks (the last may be partial). The tokens of a block are a function of its id. Each prompt is looked up,
its cached blocks adopted, the others appended and committed, and the table freed, tail first; one request after the
other, from an empty pool. The ratio is cached tokens over prompt tokens. Only full blocks are found, and one token of
every prompt is computed, so that a prompt of p tokens finds at most floor((p - 1) / 512) blocks. A prompt that a pool
cannot hold is cut to what it can: its head is what an LRU cache of that size would be left with.

``--oracle`` names a JSON file of such ratios, as ``{name: {"caps_blocks": [...], "token_hit_tailfirst": [...]}}``, for
the capacities to run and to compare with.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from bench.progress import progress
from bench.results import Results
from bench.traces import recorded
from bench.traces.recorded import MOONCAKE_BLOCK_TOKENS as BLOCK_TOKENS
from bench.traces.request import TracedRequest
from pagoda_inference.kv.pool import Pool

CAPACITIES: tuple[int | str, ...] = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, "inf")
QUICK_REQUESTS, QUICK_CAPACITIES = 500, (500, 2_000, "inf")
ACCOUNT, SCOPE = "bench", "tenant:bench"


def run(results: Results, options: argparse.Namespace) -> None:
    if options.mooncake is None:
        raise SystemExit("prefix-index needs a trace: --mooncake FILE")
    trace = read_trace(options.mooncake)
    capacities: Sequence[int | str] = CAPACITIES
    expected: Sequence[float] | None = None
    if options.oracle is not None:
        capacities, expected = read_oracle(options.oracle)
    if options.quick:
        results.skip("prefix-index.worst_difference", "--quick cuts the trace")
        trace, capacities, expected = trace[:QUICK_REQUESTS], QUICK_CAPACITIES, None
    results.add_value("prefix-index.trace", describe(trace))
    tokens = BlockTokens()
    begin = time.perf_counter()
    found = [hit_ratio(trace, capacity, tokens) for capacity in progress(capacities, "prefix-index")]
    for capacity, ratio in zip(capacities, found, strict=True):
        results.add(f"prefix-index.token_hit[{capacity}]", ratio)
    results.add("prefix-index.seconds", time.perf_counter() - begin, unit="s")
    if expected is not None:
        differences = [abs(ours - theirs) for ours, theirs in zip(found, expected, strict=True)]
        results.add_value("prefix-index.differences", dict(zip(map(str, capacities), differences, strict=True)))
        results.add("prefix-index.worst_difference", max(differences), goal="<=0.002")


def read_trace(path: Path) -> list[TracedRequest]:
    """The requests of a Mooncake trace whose prompts are not empty."""
    return [request for request in recorded.read_mooncake(path) if request.prompt_tokens > 0]


def read_oracle(path: Path) -> tuple[list[int | str], list[float]]:
    """Capacities and ratios of the one trace that the file is about."""
    [oracle] = json.loads(path.read_text()).values()
    return oracle["caps_blocks"], oracle["token_hit_tailfirst"]


def describe(trace: list[TracedRequest]) -> dict[str, int]:
    return {
        "requests": len(trace),
        "prompt_tokens": sum(request.prompt_tokens for request in trace),
        "longest_blocks": max(-(-request.prompt_tokens // BLOCK_TOKENS) for request in trace),
        "different_blocks": len({id for request in trace for id in request.blocks}),
    }


class BlockTokens:
    """The tokens of traced blocks, a function of the block's id alone; made once for all capacities."""

    def __init__(self) -> None:
        self._made: dict[int, array[int]] = {}

    def prompt(self, request: TracedRequest) -> array[int]:
        """The request's tokens, packed as the index packs them, so that cutting and hashing them is cheap."""
        tokens: array[int] = array("I")
        for id in request.blocks:
            tokens.extend(self._block(id))
        return tokens[: request.prompt_tokens]

    def _block(self, id: int) -> array[int]:
        block = self._made.get(id)
        if block is None:
            block = self._made[id] = array("I", random.Random(id).randbytes(4 * BLOCK_TOKENS))
        return block


def hit_ratio(trace: list[TracedRequest], capacity: int | str, tokens: BlockTokens) -> float:
    """Cached tokens over prompt tokens in a pool of ``capacity`` blocks; ``inf`` is one that never evicts."""
    everything = sum(len(request.blocks) for request in trace)
    pool = Pool(everything if capacity == "inf" else int(capacity), BLOCK_TOKENS, secret=b"bench")
    hits = sum(_serve(pool, tokens.prompt(request)) for request in trace)
    return hits / sum(request.prompt_tokens for request in trace)


def _serve(pool: Pool, prompt: array[int]) -> int:
    """One request through the pool. Returns its cached tokens."""
    ledger = pool.accounts.find(ACCOUNT)
    assert ledger is not None
    held = prompt[: pool.total * pool.block_size]
    chain = pool.chain(ACCOUNT, SCOPE)
    found = pool.match(chain, held)
    table = pool.open_table(ledger, chain)
    pool.adopt(table, found)
    cached = len(found) * pool.block_size
    pool.append(table, cached, len(held))
    pool.commit(table, held, len(held))
    pool.free(table)
    return cached
