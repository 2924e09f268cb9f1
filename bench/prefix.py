"""Time to first token of a conversation's next turn: warm (its prefix is cached) over cold (all of it computed).

``prefix.ratio``: a conversation of 1,000 tokens and 20 new ones. ``prefix.by_turn``: one conversation growing by 100
tokens a turn, time to first token of each turn warm, and cold, in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random

from bench.daemon import Daemon
from bench.progress import progress
from bench.results import Results
from bench.workloads import random_tokens

CONVERSATION, NEXT_TURN = 1000, 20


def run(results: Results, options: argparse.Namespace) -> None:
    asyncio.run(_run(results, options.repeats or (3 if options.quick else 9), turns=4 if options.quick else 10))


async def _run(results: Results, repeats: int, turns: int) -> None:
    rng = random.Random(20230912)
    async with Daemon() as daemon:
        await _turn(daemon, random_tokens(CONVERSATION, rng))  # warm up
        cold: list[float] = []
        warm: list[float] = []
        with results.keeping("prefix", {"cold_ttft_s": cold, "warm_ttft_s": warm}):
            for _ in progress(range(repeats), "prefix"):
                conversation = random_tokens(CONVERSATION, rng)
                cold.append((await _turn(daemon, conversation))[0])
                seconds, cached = await _turn(daemon, conversation + random_tokens(NEXT_TURN, rng))
                warm.append(seconds)
                if cached < CONVERSATION - 16:
                    raise RuntimeError(f"only {cached} of {CONVERSATION} tokens were cached")
        results.add("prefix.cold_ttft_s", cold, unit="s")
        results.add("prefix.warm_ttft_s", warm, unit="s")
        results.add("prefix.ratio", [w / c for w, c in zip(warm, cold, strict=True)], goal="<=0.10")
        results.add_value("prefix.by_turn", await _by_turn(daemon, rng, turns))


async def _by_turn(daemon: Daemon, rng: random.Random, turns: int) -> list[dict[str, float]]:
    conversation: list[int] = []
    rows = []
    for turn in progress(range(1, turns + 1), "prefix by turn"):
        conversation += random_tokens(100, rng)
        warm, cached = await _turn(daemon, conversation)
        cold, _ = await _turn(daemon, random_tokens(len(conversation), rng))
        rows.append({"turn": turn, "tokens": len(conversation), "cached": cached, "warm_s": warm, "cold_s": cold})
    return rows


async def _turn(daemon: Daemon, prompt: list[int]) -> tuple[float, int]:
    """Seconds to the first token, and how many tokens of the prompt were cached."""
    (answer,) = await daemon.generate([prompt], [1])
    return answer.first_token_s, answer.cached_tokens
