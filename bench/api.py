"""What the REST API costs beside the engine's own socket: one engine, one client process, both sides in turns.

The echo model takes 40 ms a step, as a small model on a GPU with a full batch: what is measured is everything around
it. ``api.streams``: output tokens per second of 16 streams that start at once. ``api.first``: time to the first text
of requests one after the other, each to a quiet engine. ``api.together``: the same of the 16. ``api.rejected``: time of
calls that are refused, by reason.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from bench.daemon import Daemon
from bench.http_client import Connection
from bench.installation import Installation
from bench.progress import progress
from bench.results import Results
from pagoda_inference.protocol import ChatMessage, Delta, Finished, Generate, Sampling

STEP_MS = 40
STREAMS = 16
WORDS = ("river", "stone", "lamp", "roof", "garden", "bell", "cedar", "bridge", "paper", "autumn", "crane", "temple")
QUESTION_WORDS = 12


@dataclass(frozen=True)
class Plan:
    """Rounds of 16 streams, tokens of a stream, requests one after the other in a round, rejections of each kind."""

    rounds: int
    tokens: int
    single: int
    rejections: int


@dataclass(frozen=True)
class Answer:
    """Seconds from the request to its first text and to its end."""

    first_text_s: float
    end_s: float
    output_tokens: int


@dataclass
class Measured:
    """Answers of each side, by what was asked: ``streams`` has a list for each round."""

    streams: dict[str, list[list[Answer]]] = field(default_factory=lambda: {"engine": [], "api": []})
    single: dict[str, list[Answer]] = field(default_factory=lambda: {"engine": [], "api": []})
    rejected: dict[str, list[float]] = field(default_factory=dict)


def run(results: Results, options: argparse.Namespace) -> None:
    plan = Plan(2, 50, 10, 20) if options.quick else Plan(4, 200, 20, 50)
    rounds = options.repeats or plan.rounds
    measured = Measured()
    with results.keeping("api", measured):
        asyncio.run(_measure(measured, plan, rounds))
    _add(results, measured)


def _add(results: Results, measured: Measured) -> None:
    rates = {side: [_rate(answers) for answers in rounds] for side, rounds in measured.streams.items()}
    for side, values in rates.items():
        results.add(f"api.streams.{side}_tok_s", values, unit="tok/s")
    pairs = zip(rates["api"], rates["engine"], strict=True)
    results.add("api.streams.ratio", [api / engine for api, engine in pairs], goal=">=0.9")
    single = {side: _first_ms(answers) for side, answers in measured.single.items()}
    _add_first(results, "api.first", single, goal="<=15")
    together = {
        side: _first_ms([a for answers in rounds for a in answers]) for side, rounds in measured.streams.items()
    }
    _add_first(results, "api.together", together)
    for reason, seconds in measured.rejected.items():
        results.add(f"api.rejected.{reason}_ms", [1000 * each for each in seconds], unit="ms")
    every = [1000 * each for seconds in measured.rejected.values() for each in seconds]
    results.add("api.rejected_ms", every, unit="ms", goal="<=50")


def _add_first(results: Results, name: str, first_ms: dict[str, list[float]], *, goal: str | None = None) -> None:
    medians = {side: results.add(f"{name}.{side}_ms", values, unit="ms") for side, values in first_ms.items()}
    results.add(f"{name}.added_ms", medians["api"] - medians["engine"], unit="ms", goal=goal)


def _rate(answers: list[Answer]) -> float:
    return sum(answer.output_tokens for answer in answers) / max(answer.end_s for answer in answers)


def _first_ms(answers: list[Answer]) -> list[float]:
    return [1000 * answer.first_text_s for answer in answers]


async def _measure(measured: Measured, plan: Plan, rounds: int) -> None:
    rng = random.Random(20261130)
    async with (
        Daemon("--model", "echo", "--step-ms", str(STEP_MS)) as daemon,
        Installation(str(daemon.client.address)) as installation,
    ):
        key, limited = await installation.make_key(), await installation.make_key("--requests-per-minute", "1")
        await _ask_together(installation.port, key, plan.single, rng)  # warm up
        # The same tenant on both sides.
        account = next(row.id for row in (await daemon.report()).accounts if row.tokens_out)
        engine = Engine(daemon, account)
        await engine.ask(await engine.tokens_of(_question(rng)), 1)
        for _ in progress(range(rounds), "api"):
            for side in rng.sample(["engine", "api"], 2):
                if side == "engine":
                    answers = await engine.ask_together(plan.tokens, rng)
                else:
                    answers = await _ask_together(installation.port, key, plan.tokens, rng)
                measured.streams[side].append(answers)
            async with Connection(installation.port, key) as connection:
                await _single(measured, engine, connection, -(-plan.single // rounds), rng)
        await _reject(measured, installation.port, {"key": key, "limited": limited}, plan.rejections)


async def _ask_together(port: int, key: str, tokens: int, rng: random.Random) -> list[Answer]:
    """16 streams at once, over connections that are open already."""
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(port, key)) for _ in range(STREAMS)]
        return await asyncio.gather(*(ask_api(each, _question(rng), tokens) for each in connections))


async def _single(measured: Measured, engine: Engine, connection: Connection, count: int, rng: random.Random) -> None:
    for _ in range(count):
        question = _question(rng)
        measured.single["engine"].append(await engine.ask(await engine.tokens_of(question), 2))
        measured.single["api"].append(await ask_api(connection, question, 2))


async def _reject(measured: Measured, port: int, keys: dict[str, str], count: int) -> None:
    """Calls that are refused, each kind ``count`` times. Raises RuntimeError where one is not."""
    usual = chat("What is a pagoda?", 1)
    async with Connection(port, keys["limited"]) as connection:
        await ask_api(connection, "The one of this minute", 1)
    kinds: dict[str, tuple[str, dict[str, Any], int]] = {
        "rate_limit": (keys["limited"], usual, 429),
        "wrong_field": (keys["key"], usual | {"n": 10**9}, 400),
        "unknown_model": (keys["key"], usual | {"model": "other"}, 404),
        "too_long": (keys["key"], chat("x" * 5000, 1), 400),
        "unknown_key": ("pgd_unknown", usual, 401),
    }
    for kind, (key, body, expected) in kinds.items():
        times = measured.rejected.setdefault(kind, [])
        async with Connection(port, key) as connection:
            for _ in range(count):
                begin = time.perf_counter()
                status = await connection.post("/v1/chat/completions", body)
                times.append(time.perf_counter() - begin)
                if status != expected:
                    raise RuntimeError(f"{kind} was answered with {status} instead of {expected}")


def chat(question: str, tokens: int) -> dict[str, Any]:
    """The body of a greedy completion of exactly so many tokens."""
    messages = [{"role": "user", "content": question}]
    return {"model": "echo", "messages": messages, "temperature": 0, "max_tokens": tokens, "ignore_eos": True}


async def ask_api(connection: Connection, question: str, tokens: int) -> Answer:
    """A streamed chat completion of exactly ``tokens``."""
    body = chat(question, tokens) | {"stream": True, "stream_options": {"include_usage": True}}
    begin, first, written = time.perf_counter(), None, 0
    async for chunk in connection.events("/v1/chat/completions", body):
        if first is None and any(choice["delta"].get("content") for choice in chunk["choices"]):
            first = time.perf_counter() - begin
        if chunk.get("usage"):
            written = chunk["usage"]["completion_tokens"]
    end = time.perf_counter() - begin
    return Answer(end if first is None else first, end, written)


class Engine:
    """The engine's own socket, asked for a tenant that it knows."""

    def __init__(self, daemon: Daemon, account: str) -> None:
        self._client = daemon.client
        self._account = account
        self._numbers = itertools.count()

    async def tokens_of(self, question: str) -> tuple[int, ...]:
        """What the engine is sent: counted before the time begins to run, since its callers have them."""
        return (await self._client.tokenize(messages=(ChatMessage("user", question),))).token_ids

    async def ask_together(self, tokens: int, rng: random.Random) -> list[Answer]:
        """16 at once."""
        prompts = [await self.tokens_of(_question(rng)) for _ in range(STREAMS)]
        return await asyncio.gather(*(self.ask(prompt, tokens) for prompt in prompts))

    async def ask(self, prompt: tuple[int, ...], tokens: int) -> Answer:
        """The same conversation as ``ask_api`` has, to exactly ``tokens``."""
        command = Generate(
            id=f"bench-{next(self._numbers)}",
            account=self._account,
            scope="tenant:bench",
            prompt_token_ids=prompt,
            sampling=Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True),
            request_class="api",
            on_disconnect="cancel",
        )
        begin, first, written = time.perf_counter(), None, 0
        with self._client.generate(command) as events:
            async for event in events:
                if isinstance(event, Delta) and event.text and first is None:
                    first = time.perf_counter() - begin
                elif isinstance(event, Finished):
                    if event.error is not None:
                        raise RuntimeError(event.error.message)
                    await self._client.acknowledge(command.id, command.account, event.seq)
                    written = event.usage.output_tokens
        end = time.perf_counter() - begin
        return Answer(end if first is None else first, end, written)


def _question(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=QUESTION_WORDS))
