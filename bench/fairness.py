"""One tenant floods, another asks a short question every two seconds: the real daemon in its default configuration.

Both have the same weight and no reservation. ``fairness.ttft``: time to first token of the questions, alone and beside
the flood, at the same cadence. ``fairness.flood``: output of the flood with the questions over without them, in windows
that take turns within one flood. ``fairness.warm``: a third tenant has a reservation and a conversation from before the
flood; cached tokens of its next turn in the flood over those in quiet. ``fairness.warm_full_pool``: the same in a pool
so small that the flood fills it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.daemon import Daemon
from bench.flood import Flood, Progress, ask_regularly
from bench.progress import progress
from bench.results import Results, percentile
from bench.workloads import random_tokens
from pagoda_inference.protocol import Account, PoolReport

FLOODING, ASKING, RETURNING = "flooding", "asking", "returning"
ACCOUNTS = [Account(FLOODING), Account(ASKING), Account(RETURNING, reservation=64)]
CONVERSATION, NEXT_TURN = 400, 20
SMALL_POOL_TOKENS = 4096
EVICTED_BLOCKS = 64
"""So many evictions say that the pool was full."""
ORDERS = (("without", "with", "with", "without"), ("with", "without", "without", "with"))
"""Windows of a flood: a drift of its rate hits both kinds alike."""
QUICK_ORDERS = (("without", "with"), ("with", "without"))


@dataclass(frozen=True)
class Plan:
    """Seconds of a window, seconds of a flood before its first window, orders of windows that rounds take in turns."""

    window_s: float
    ramp_s: float
    orders: tuple[tuple[str, ...], ...]


@dataclass
class Measured:
    """TTFT in seconds by phase, the flood's progress by kind of window, cached shares of the warm conversation."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    windows: dict[str, list[Progress]] = field(default_factory=lambda: {"without": [], "with": []})
    warm: list[float] = field(default_factory=list)


def run(results: Results, options: argparse.Namespace) -> None:
    rounds = options.repeats or (1 if options.quick else 2)
    plan = Plan(16.0, 8.0, QUICK_ORDERS) if options.quick else Plan(32.0, 20.0, ORDERS)
    with tempfile.TemporaryDirectory(prefix="pagoda-bench-") as folder:
        accounts = Path(folder) / "accounts.json"
        accounts.write_bytes(msgspec.json.encode(ACCOUNTS))
        measured = asyncio.run(_measure(results, str(accounts), rounds, plan))
        _add(results, measured)
        warm_full_pool = asyncio.run(_warm_in_full_pool(str(accounts), rounds))
    results.add("fairness.warm_full_pool.cached_ratio", warm_full_pool, goal=">=1.0")


def _add(results: Results, measured: Measured) -> None:
    both = {"alone": measured.alone, "beside": measured.beside}
    for phase, values in both.items():
        results.add(f"fairness.ttft.{phase}_s", values, unit="s")
        results.add(f"fairness.ttft.{phase}_p95_s", percentile(values, 95), unit="s")
    medians = [percentile(values, 50) for values in both.values()]
    results.add("fairness.ttft.median_ratio", medians[1] / medians[0])
    tails = [percentile(values, 95) for values in both.values()]
    results.add("fairness.ttft.p95_ratio", tails[1] / tails[0], goal="<=3.0")
    pairs = list(zip(measured.windows["with"], measured.windows["without"], strict=True))
    for kind, windows in measured.windows.items():
        results.add(f"fairness.flood.{kind}_tok_s", [each.output_rate for each in windows], unit="tok/s")
    results.add("fairness.flood.ratio", [w.output_rate / wo.output_rate for w, wo in pairs], goal=">=0.85")
    results.add("fairness.flood.service_ratio", [w.service_rate / wo.service_rate for w, wo in pairs])
    steps = [each.seconds / max(1, each.steps) for pair in pairs for each in pair]
    results.add("fairness.flood.step_s", steps, unit="s")
    results.add("fairness.warm.cached_ratio", measured.warm, goal=">=1.0")


async def _measure(results: Results, accounts: str, rounds: int, plan: Plan) -> Measured:
    rng = random.Random(20260725)
    measured = Measured()
    async with Daemon("--accounts", accounts) as daemon:
        report = await daemon.report()
        results.add_value("fairness.pool", {"blocks": report.total, "block_size": report.block_size})
        await daemon.answer(random_tokens(100, rng), 16, ASKING)  # warm up
        with results.keeping("fairness", measured):
            for number in progress(range(rounds), "fairness"):
                await _round(daemon, measured, plan, plan.orders[number % len(plan.orders)], rng)
    return measured


async def _round(daemon: Daemon, measured: Measured, plan: Plan, order: tuple[str, ...], rng: random.Random) -> None:
    """Questions in quiet, then a flood in windows without and with questions."""
    for task in await ask_regularly(daemon, ASKING, plan.window_s, rng):
        measured.alone.append((await task).first_token_s)
    conversation = random_tokens(CONVERSATION, rng)
    quiet = await _next_turn(daemon, conversation, rng, first=True)
    async with Flood(daemon, FLOODING, rng):
        await asyncio.sleep(plan.ramp_s)
        measured.warm.append(await _next_turn(daemon, conversation, rng) / quiet)
        for kind in order:
            before = await daemon.report()
            if kind == "with":
                tasks = await ask_regularly(daemon, ASKING, plan.window_s, rng)
            else:
                tasks = []
                await asyncio.sleep(plan.window_s)
            measured.windows[kind].append(Progress.between(before, await daemon.report(), FLOODING))
            measured.beside += [(await task).first_token_s for task in tasks]
        measured.warm.append(await _next_turn(daemon, conversation, rng) / quiet)


async def _next_turn(daemon: Daemon, conversation: list[int], rng: random.Random, *, first: bool = False) -> int:
    """Cached tokens of a conversation's next turn. ``first``: nobody had the conversation yet."""
    if first:
        await daemon.answer(conversation, 1, RETURNING)
    answer = await daemon.answer(conversation + random_tokens(NEXT_TURN, rng), 1, RETURNING)
    return answer.cached_tokens


async def _warm_in_full_pool(accounts: str, rounds: int) -> list[float]:
    """Cached shares of next turns once a flood has filled a small pool."""
    rng = random.Random(20260726)
    shares = []
    async with Daemon("--accounts", accounts, "--pool-tokens", str(SMALL_POOL_TOKENS)) as daemon:
        for _ in progress(range(rounds), "fairness in a full pool"):
            shares.append(await _full_pool_round(daemon, rng))
    return shares


async def _full_pool_round(daemon: Daemon, rng: random.Random) -> float:
    conversation = random_tokens(CONVERSATION, rng)
    quiet = await _next_turn(daemon, conversation, rng, first=True)
    async with Flood(daemon, FLOODING, rng):
        enough = _evicted(await daemon.report()) + EVICTED_BLOCKS
        await daemon.until(lambda report: _evicted(report) >= enough)
        return await _next_turn(daemon, conversation, rng) / quiet


def _evicted(report: PoolReport) -> int:
    """Blocks evicted since the engine started, from anybody."""
    return sum(sum(row.evictions.values()) for row in report.accounts)
