"""Whether copies between the pool and the tiers below it hold up anybody's next token.

A steady tenant reads one long answer while another's conversations come back one after the other, each with a fresh
question and a short answer. ``with`` copies they come from the host; ``without``, all of them are in a pool that is
large enough: so both compute the same, prompt tokens and answers, and only one copies.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass, field

from bench.daemon import Daemon
from bench.flood import row_of
from bench.progress import progress
from bench.results import percentile
from bench.workloads import random_tokens

STEADY = "steady"
PROMPT, OUTPUT = 16, 160
STEADY_BLOCKS = -(-(PROMPT + OUTPUT) // 16) + 1
CONVERSATIONS = 4
QUESTION, ANSWER = 60, 4


@dataclass
class Stalls:
    """Seconds between the steady tenant's tokens, blocks that were copied meanwhile, and how long it all took."""

    gaps: list[float] = field(default_factory=list)
    copied: int = 0
    seconds: float = 0.0

    def percentile_ms(self, percent: int) -> float:
        return percentile(self.gaps, percent) * 1000


async def measure_stalls(
    daemons: dict[str, Daemon], account: str, tokens: int, windows: int, rng: random.Random
) -> dict[str, Stalls]:
    """``windows`` answers of the steady tenant in each of the two daemons in turns; conversations of ``tokens``."""
    conversations = [random_tokens(tokens, rng) for _ in range(CONVERSATIONS)]
    prompt = random_tokens(PROMPT, rng)
    stalls = {kind: Stalls() for kind in daemons}
    for daemon in daemons.values():
        for conversation in 2 * conversations:  # the second time each is where it will come from
            await daemon.answer(conversation, 1, account)
    kinds = list(daemons)
    for number in progress(range(windows), "stalls"):
        for kind in kinds if number % 2 else reversed(kinds):
            await _window(daemons[kind], account, prompt, conversations, random.Random(number), stalls[kind])
    return stalls


async def _window(
    daemon: Daemon, account: str, prompt: list[int], conversations: list[list[int]], rng: random.Random, stalls: Stalls
) -> None:
    """One answer of the steady tenant. ``rng``: alike for all that are to be asked the same."""
    before = await _copied(daemon, account)
    begin = time.perf_counter()
    steady = asyncio.create_task(daemon.answer(prompt, OUTPUT, STEADY))
    for conversation in itertools.cycle(conversations):
        await daemon.answer(conversation + random_tokens(QUESTION, rng), ANSWER, account)
        if steady.done():
            break
    times = (await steady).token_times
    stalls.gaps += [later - earlier for earlier, later in itertools.pairwise(times)]
    stalls.seconds += time.perf_counter() - begin
    stalls.copied += await _copied(daemon, account) - before


async def _copied(daemon: Daemon, account: str) -> int:
    """Blocks of the account copied down and back since the engine started."""
    row = row_of(await daemon.report(), account)
    return sum(row.demoted.values()) + sum(row.promoted.values())
