"""Load by tenants on a running daemon: one that floods it, one that asks now and then, and how far it all got."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from types import TracebackType

from bench.daemon import Answer, Daemon
from bench.workloads import random_tokens
from pagoda_inference.protocol import AccountReport, PoolReport

FLOOD_REQUESTS = 64
FLOOD_PROMPT, FLOOD_OUTPUT = (100, 600), (64, 256)
BEGUN_PROMPT, BEGUN_OUTPUT = (16, 64), (1, 256)
"""The first of them stand for requests in the middle of their answers: so the load is steady soon."""
QUESTION_PROMPT, QUESTION_OUTPUT = 30, 16
EVERY_S = 2.0


class Flood:
    """A tenant that always has 64 long requests at the engine: one that ends is followed by another at once.

    Use as an async context manager; leaving it cancels what is left and waits until the engine has nothing to do.
    """

    def __init__(self, daemon: Daemon, account: str, rng: random.Random) -> None:
        self._daemon = daemon
        self._account = account
        self._rng = rng

    async def __aenter__(self) -> Flood:
        self._tasks = [asyncio.create_task(self._keep_asking()) for _ in range(FLOOD_REQUESTS)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        failed = [each for each in ended if isinstance(each, Exception)]
        if failed and error is None:
            raise failed[0]
        if error is None:
            await self._daemon.until(lambda report: not any(row.running or row.waiting for row in report.accounts))

    async def _keep_asking(self) -> None:
        prompt, output = BEGUN_PROMPT, BEGUN_OUTPUT
        while True:
            tokens = random_tokens(self._rng.randint(*prompt), self._rng)
            await self._daemon.answer(tokens, self._rng.randint(*output), self._account)
            prompt, output = FLOOD_PROMPT, FLOOD_OUTPUT


async def ask_regularly(daemon: Daemon, account: str, seconds: float, rng: random.Random) -> list[asyncio.Task[Answer]]:
    """A short question with fresh text every two seconds, whether or not the last was answered."""
    begin = time.perf_counter()
    tasks = []
    for number in range(max(1, round(seconds / EVERY_S))):
        await asyncio.sleep(begin + number * EVERY_S - time.perf_counter())
        prompt = random_tokens(QUESTION_PROMPT, rng)
        tasks.append(asyncio.create_task(daemon.answer(prompt, QUESTION_OUTPUT, account)))
    await asyncio.sleep(begin + seconds - time.perf_counter())
    return tasks


@dataclass(frozen=True)
class Progress:
    """What an account got between two reports of the engine."""

    seconds: float
    steps: int
    tokens_in: int
    tokens_out: int

    @classmethod
    def between(cls, before: PoolReport, after: PoolReport, account: str) -> Progress:
        first, last = row_of(before, account), row_of(after, account)
        return cls(
            after.time - before.time,
            after.step - before.step,
            last.tokens_in - first.tokens_in,
            last.tokens_out - first.tokens_out,
        )

    @property
    def output_rate(self) -> float:
        """Output tokens per second."""
        return self.tokens_out / self.seconds

    @property
    def service_rate(self) -> float:
        """Prompt tokens computed and twice the output tokens, per second: the units that fairness is counted in."""
        return (self.tokens_in + 2 * self.tokens_out) / self.seconds


def row_of(report: PoolReport, account: str) -> AccountReport:
    return next(row for row in report.accounts if row.id == account)
