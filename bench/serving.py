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

WARM_UP_TOKENS = 4
TIME_BOX_S = 240.0
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
Round = tuple[list[list[int]], list[int]]


def run(results: Results, options: argparse.Namespace) -> None:
    rounds = options.repeats or (2 if options.quick else 5)
    rng = random.Random(20260611)
    for short, dtype in DTYPES.items():
        squares = [([random_tokens(64, rng) for _ in range(16)], [64] * 16) for _ in range(rounds)]
        asyncio.run(_measure(results, f"serving.{short}", dtype, squares, {"hf_cb": ">=1.5", "hf_static": ">=0.9"}))
    if options.quick:
        results.skip("serving.sharegpt", "left out of --quick")
    else:
        chats = [_chats(rng, options) for _ in range(rounds)]
        asyncio.run(_measure(results, "serving.sharegpt", "auto", chats, {}))


def _chats(rng: random.Random, options: argparse.Namespace) -> Round:
    pairs = [(min(prompt, 512), min(output, 128)) for prompt, output in sharegpt_lengths(32, rng, options.traces)]
    return [random_tokens(prompt, rng) for prompt, _ in pairs], [output for _, output in pairs]


async def _measure(results: Results, name: str, dtype: str, rounds: list[Round], goals: dict[str, str]) -> None:
    """Every peer through every round, interleaved, after a short round to warm up.

    A slow machine stops after TIME_BOX_S and at least two rounds: the count of the results says how many there were.
    """
    model = prepare_default_model(default_home())
    speeds: dict[str, list[float]] = {"ours": [], "hf_cb": [], "hf_static": []}
    async with Daemon("--model", str(model), "--dtype", dtype) as daemon:
        dtype = (await daemon.client.models()).dtype
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(HuggingFace(model, dtype, mode)) for mode in ("continuous", "static")]
            await _round(daemon, peers, (rounds[0][0], [WARM_UP_TOKENS] * len(rounds[0][0])))
            begin = time.perf_counter()
            for done, each in enumerate(progress(rounds, name)):
                if done >= 2 and time.perf_counter() - begin > TIME_BOX_S:
                    break
                for who, speed in (await _round(daemon, peers, each)).items():
                    speeds[who].append(speed)
    for who, values in speeds.items():
        results.add(f"{name}.{who}_tok_s", values, unit="tok/s")
    for who in ("hf_cb", "hf_static"):
        ratios = [ours / theirs for ours, theirs in zip(speeds["ours"], speeds[who], strict=True)]
        results.add(f"{name}.ratio_{who}", ratios, goal=goals.get(who))


async def _round(daemon: Daemon, peers: list[HuggingFace], work: Round) -> dict[str, float]:
    """Output tokens per second of everybody for the same work, one after the other."""
    prompts, outputs = work
    begin = time.perf_counter()
    await daemon.generate(prompts, outputs)
    speeds = {"ours": sum(outputs) / (time.perf_counter() - begin)}
    for peer in peers:
        seconds = await asyncio.to_thread(peer.generate, prompts, outputs)
        speeds[peer.name] = sum(outputs) / seconds
    return speeds
