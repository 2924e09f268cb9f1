"""Output tokens per second of our daemon beside transformers' static batch and its continuous batching.

Two workloads per dtype: 16 requests of 64 tokens in and 64 out, and (bf16) 32 chats of ShareGPT lengths with prompts
of at most 512 and outputs of at most 128 tokens. Every round sends fresh random prompts, the same to everybody, one
peer after the other; the ratios are of rounds, so that a slow moment of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time

from bench.daemon import Daemon
from bench.peers.huggingface import HuggingFace
from bench.progress import progress
from bench.results import Results
from bench.workloads import random_tokens, sharegpt_lengths
from pagoda_inference.model.default_model import prepare_default_model
from pagoda_inference.settings import default_home

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
Round = tuple[list[list[int]], list[int]]


def run(results: Results, options: argparse.Namespace) -> None:
    rounds = options.repeats or (2 if options.quick else 5)
    rng = random.Random(20260611)
    for short, dtype in DTYPES.items():
        squares = [([random_tokens(64, rng) for _ in range(16)], [64] * 16) for _ in range(rounds + 1)]
        goals = {"hf_cb": ">=1.5", "hf_static": ">=0.9"} if short == "bf16" else {}
        asyncio.run(_measure(results, f"serving.{short}", dtype, squares, goals))
    if not options.quick:
        chats = [_chats(rng, options) for _ in range(rounds + 1)]
        asyncio.run(_measure(results, "serving.sharegpt", DTYPES["bf16"], chats, {}))


def _chats(rng: random.Random, options: argparse.Namespace) -> Round:
    pairs = [(min(prompt, 512), min(output, 128)) for prompt, output in sharegpt_lengths(32, rng, options.traces)]
    return [random_tokens(prompt, rng) for prompt, _ in pairs], [output for _, output in pairs]


async def _measure(results: Results, name: str, dtype: str, rounds: list[Round], goals: dict[str, str]) -> None:
    """Every peer through every round, interleaved; the first round warms up and is not counted."""
    model = prepare_default_model(default_home())
    speeds: dict[str, list[float]] = {"ours": [], "hf_cb": [], "hf_static": []}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(HuggingFace(model, dtype, mode)) for mode in ("continuous", "static")]
        async with Daemon("--model", str(model), "--dtype", dtype) as daemon:
            for prompts, outputs in progress(rounds, name):
                begin = time.perf_counter()
                await daemon.generate(prompts, outputs)
                speeds["ours"].append(sum(outputs) / (time.perf_counter() - begin))
                for peer in peers:
                    seconds = await asyncio.to_thread(peer.generate, prompts, outputs)
                    speeds[peer.name].append(sum(outputs) / seconds)
    for peer_name, values in speeds.items():
        results.add(f"{name}.{peer_name}_tok_s", values[1:], unit="tok/s")
    for peer_name in ("hf_cb", "hf_static"):
        ratios = [ours / theirs for ours, theirs in zip(speeds["ours"][1:], speeds[peer_name][1:], strict=True)]
        results.add(f"{name}.ratio_{peer_name}", ratios, goal=goals.get(peer_name))
