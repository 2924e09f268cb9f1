"""Conversations that come back to a pool which holds only two of them: from the tiers below it, or computed again.

The real daemon in each mode, all at once, the same turns in each, one after the other. ``host`` has a host tier for all
conversations, ``disk`` a host tier for one and a disk tier for all, ``recompute`` neither. ``tiers.MODE.ratio``: time
to first token of a returning conversation over the same turn in ``recompute``. ``tiers.restart``: the ``disk`` daemon
stopped and started again on its folder, then the next turn of every conversation. ``tiers.stall``: see bench/stalls.py.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.daemon import Answer, Daemon
from bench.flood import row_of
from bench.progress import progress
from bench.results import Results
from bench.stalls import STEADY, STEADY_BLOCKS, Stalls, measure_stalls
from bench.workloads import random_tokens
from pagoda_inference.protocol import Account

RETURNING = "returning"
ACCOUNTS = [Account(RETURNING), Account(STEADY, reservation=STEADY_BLOCKS)]
"""The steady tenant's reservation is lent to the other's cache while it asks for nothing."""
BLOCK = 16
FIRST, NEXT, ANSWER = 220, 60, 30
"""Tokens of a conversation's first question, of each further one, and of every answer."""
POOL_CONVERSATIONS = 2
HOST_GIB, DISK_GIB = 1.0, 2.0
LARGE_POOL_TOKENS = 16384
MODES = ("recompute", "host", "disk")
RESIDENT = "resident"
"""No tier either, but a pool for everything: what stalls are compared with."""


@dataclass(frozen=True)
class Plan:
    """Conversations, turns of each, repeats of it all, and windows in which stalls are looked for, per mode."""

    conversations: int
    turns: int
    repeats: int
    windows: int

    @property
    def longest(self) -> int:
        """Tokens of a conversation after its last turn."""
        return FIRST + ANSWER + (self.turns - 1) * (NEXT + ANSWER)

    @property
    def pool_tokens(self) -> int:
        """Room for two conversations, and for one to answer beside the steady tenant."""
        blocks = -(-self.longest // BLOCK) + 1
        return BLOCK * max(POOL_CONVERSATIONS * blocks, blocks + 4 + STEADY_BLOCKS)


FULL, QUICK = Plan(8, 6, 2, 4), Plan(4, 2, 1, 1)


@dataclass
class Turns:
    """A mode's returning turns, in the same order in every mode: seconds to the first token, cached tokens."""

    first_token_s: list[float] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    by_turn: dict[int, list[int]] = field(default_factory=dict)

    def add(self, turn: int, answer: Answer) -> None:
        self.first_token_s.append(answer.first_token_s)
        self.cached.append(answer.cached_tokens)
        self.by_turn.setdefault(turn, []).append(answer.cached_tokens)


def run(results: Results, options: argparse.Namespace) -> None:
    plan = QUICK if options.quick else FULL
    asyncio.run(_run(results, plan, options.repeats or plan.repeats))


async def _run(results: Results, plan: Plan, repeats: int) -> None:
    rng = random.Random(20261130)
    results.add_value("tiers.plan", {"pool_tokens": plan.pool_tokens, "longest_conversation": plan.longest})
    with tempfile.TemporaryDirectory(prefix="pagoda-bench-") as name:
        folder = Path(name)
        (folder / "accounts.json").write_bytes(msgspec.json.encode(ACCOUNTS))
        daemons = make_daemons(plan, folder)
        async with AsyncExitStack() as stack:
            for mode in ("recompute", "host"):
                await stack.enter_async_context(daemons[mode])
            async with daemons["disk"]:
                modes = {mode: daemons[mode] for mode in MODES}
                for daemon in modes.values():
                    await daemon.answer(random_tokens(FIRST, rng), ANSWER, RETURNING)  # warm up
                measured = {mode: Turns() for mode in MODES}
                with results.keeping("tiers", measured):
                    for number in progress(range(repeats), "tiers"):
                        last = await converse(modes, plan, measured, rng, number)
                for mode in MODES:
                    await _add_copies(results, mode, daemons[mode])
                _add_turns(results, measured)
            _add_restart(results, *await _after_restart(daemons, last, rng))
            pair = {"with": daemons["host"], "without": await stack.enter_async_context(daemons[RESIDENT])}
            stalls = await measure_stalls(pair, RETURNING, plan.longest - NEXT - ANSWER, plan.windows, rng)
    _add_stalls(results, stalls)


def make_daemons(plan: Plan, folder: Path) -> dict[str, Daemon]:
    """One per mode and the resident one, not started."""
    accounts = ("--accounts", str(folder / "accounts.json"))
    small = (*accounts, "--pool-tokens", str(plan.pool_tokens))
    large = (*accounts, "--pool-tokens", str(LARGE_POOL_TOKENS))
    # A host tier as large as a conversation in float32 of SmolLM2 (45 KiB a token), so that others go on to the disk.
    tiny = f"{plan.longest * 45 / 2**20:.4f}"
    return {
        "recompute": Daemon(*small, "--host-gib", "0"),
        "host": Daemon(*small, "--host-gib", str(HOST_GIB)),
        "disk": Daemon(*small, "--host-gib", tiny, "--disk-gib", str(DISK_GIB), tier_folder=folder / "kv"),
        RESIDENT: Daemon(*large, "--host-gib", "0"),
    }


Conversations = dict[str, list[list[int]]]
"""By mode: the tokens of each conversation. Questions are the same in all modes, answers are each mode's own."""


async def converse(
    daemons: dict[str, Daemon], plan: Plan, measured: dict[str, Turns], rng: random.Random, rotation: int
) -> Conversations:
    """Every conversation's next turn in turns, so that each has long been evicted when it comes back."""
    conversations: Conversations = {mode: [[] for _ in range(plan.conversations)] for mode in daemons}
    modes = list(daemons)
    for turn in range(1, plan.turns + 1):
        for number in progress(range(plan.conversations), f"turn {turn}"):
            question = random_tokens(FIRST if turn == 1 else NEXT, rng)
            rotation += 1
            for place in range(len(modes)):  # nobody is always the first or the last
                mode = modes[(place + rotation) % len(modes)]
                conversation = conversations[mode][number]
                conversation += question
                answer = await daemons[mode].answer(conversation, ANSWER, RETURNING)
                conversation += answer.token_ids
                if turn > 1:
                    measured[mode].add(turn, answer)
    return conversations


async def _after_restart(
    daemons: dict[str, Daemon], conversations: Conversations, rng: random.Random
) -> tuple[list[float], list[float], list[int]]:
    """The next turn of each conversation: seconds to the first token after a restart, and computed; cached tokens."""
    restarted, computed, cached = [], [], []
    async with daemons["disk"] as daemon:
        await daemon.answer(random_tokens(FIRST, rng), ANSWER, RETURNING)  # warm up
        pairs = zip(conversations["disk"], conversations["recompute"], strict=True)
        for before, same in progress(list(pairs), "after a restart"):
            question = random_tokens(NEXT, rng)
            answer = await daemon.answer(before + question, 1, RETURNING)
            restarted.append(answer.first_token_s)
            cached.append(answer.cached_tokens)
            computed.append((await daemons["recompute"].answer(same + question, 1, RETURNING)).first_token_s)
    return restarted, computed, cached


async def _add_copies(results: Results, mode: str, daemon: Daemon) -> None:
    report = await daemon.report()
    row = row_of(report, RETURNING)
    evicted = sum(row.evictions.values())
    copies = {"demoted": row.demoted, "promoted": row.promoted, "evicted": evicted, "tier_bytes": row.tier_bytes}
    results.add_value(f"tiers.{mode}.blocks", copies | {"pool": report.total})


def _add_turns(results: Results, measured: dict[str, Turns]) -> None:
    computed = measured["recompute"].first_token_s
    goals = {"host": "<=0.35"}
    for mode, turns in measured.items():
        results.add(f"tiers.{mode}.ttft_s", turns.first_token_s, unit="s")
        results.add_value(f"tiers.{mode}.cached", {turn: sum(each) / len(each) for turn, each in turns.by_turn.items()})
        if mode != "recompute":
            ratios = [own / other for own, other in zip(turns.first_token_s, computed, strict=True)]
            results.add(f"tiers.{mode}.ratio", ratios, goal=goals.get(mode))


def _add_restart(results: Results, restarted: list[float], computed: list[float], cached: list[int]) -> None:
    results.add("tiers.restart.ttft_s", restarted, unit="s")
    results.add("tiers.restart.cached", cached, unit="tokens")
    results.add("tiers.restart.ratio", [own / other for own, other in zip(restarted, computed, strict=True)])


def _add_stalls(results: Results, stalls: dict[str, Stalls]) -> None:
    for kind, each in stalls.items():
        for percent in (50, 99):
            results.add(f"tiers.stall.{kind}_copies_p{percent}_ms", each.percentile_ms(percent), unit="ms")
        results.add(f"tiers.stall.{kind}_copies_max_ms", max(each.gaps) * 1000, unit="ms")
        results.add(f"tiers.stall.{kind}_copies_blocks_s", each.copied / each.seconds, unit="blocks/s")
    ratio = stalls["with"].percentile_ms(99) / stalls["without"].percentile_ms(99)
    results.add("tiers.stall.p99_ratio", ratio, goal="<=1.2")
