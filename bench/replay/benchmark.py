"""From the options to the figures."""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.progress import draw
from bench.refusal import refuse
from bench.replay import callers
from bench.replay.callers import Keys, KeysUnusable
from bench.replay.figures import add_figures, due_of
from bench.replay.options import ECHO_TOKENS, HIGHEST_TOKEN, LOWEST_TOKEN, seed_of
from bench.replay.page import write_page
from bench.replay.record import Record
from bench.replay.sending import Sender
from bench.replay.server import LIST_TIMEOUT_S, Server, ServerUnusable, find_model, own_installation, parse_url
from bench.results import Results
from bench.traces import arrivals
from bench.traces.content import Content
from bench.traces.errors import TraceMissing
from bench.traces.fitting import fit
from bench.traces.named import named
from bench.traces.request import TracedRequest

LAW_REQUESTS = 200
QUICK_REQUESTS = 50


class ReplayUnusable(ValueError):
    """There is nothing to replay, or nothing that can be. The message says why and what to do."""


@dataclass
class Replayed:
    """What a replay leaves, however it ends. trace: ``replay.trace`` of the results; empty before it begins. records:
    one for each request."""

    trace: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)


def run(results: Results, options: argparse.Namespace) -> None:
    """Ends the process, with a line that says why, where the replay cannot begin: then nothing is recorded."""
    try:
        _run(results, options)
    except (KeysUnusable, ServerUnusable, ReplayUnusable) as error:
        refuse(error)


def _run(results: Results, options: argparse.Namespace) -> None:
    if options.trace is None:
        raise ReplayUnusable("replay needs a trace: --trace NAME_OR_PATH")
    if options.url and options.keys is None:
        raise ReplayUnusable("replay needs API keys of the server: --keys FILE")
    seed = seed_of(options)
    requests = trace_of(options, random.Random(seed))
    replayed = Replayed()
    _allow_connections()
    incomplete: str | None = "interrupted"
    try:
        asyncio.run(replay(options, requests, seed, replayed))
        incomplete = None
    except Exception as error:
        incomplete = f"{type(error).__name__}: {error}"
        raise
    finally:
        if any(record.sent_s is not None for record in replayed.records):
            _end(results, options, replayed, incomplete)


def trace_of(options: argparse.Namespace, rng: random.Random) -> list[TracedRequest]:
    """As asked for: read, cut to its first requests, brought to a rate or a speed, cut to seconds.

    Raises ReplayUnusable for a trace that cannot be read, has no arrivals and no rate to give it, or no requests.
    """
    try:
        trace = named(options.trace, options.traces, options.requests or LAW_REQUESTS, rng)
    except (TraceMissing, ValueError, OSError) as error:
        raise ReplayUnusable(str(error)) from None
    requests = arrivals.cut(trace, count=options.requests or (QUICK_REQUESTS if options.quick else None))
    if not requests:
        raise ReplayUnusable(f"the trace {options.trace} has no requests")
    if options.rate:
        requests = _at_rate(requests, options.rate, options.seconds, rng)
    elif not arrivals.has_arrivals(trace):  # of all of it: the part that is replayed may come at once
        raise ReplayUnusable(f"the trace {options.trace} does not say when its requests arrive: give --rate")
    elif options.speed:
        requests = arrivals.at_speed(requests, options.speed)
    requests = arrivals.cut(requests, seconds=options.seconds)
    if not requests:
        raise ReplayUnusable(f"no request arrives in the first {options.seconds:g} s")
    return requests


def _at_rate(
    requests: Sequence[TracedRequest], rate: float, seconds: float | None, rng: random.Random
) -> list[TracedRequest]:
    """By the trace's own arrivals. By a Poisson process where it has none, or the part that is replayed comes at once:
    no factor brings that to a rate."""
    # The part that is replayed is brought to the rate: a trace has quiet minutes, and this may be one.
    part = arrivals.cut(requests, count=max(2, round(rate * seconds)) if seconds else None)
    if arrivals.has_arrivals(part):
        return arrivals.at_rate(part, rate)
    return arrivals.poisson(requests, rate, rng)


async def replay(options: argparse.Namespace, requests: Sequence[TracedRequest], seed: int, replayed: Replayed) -> None:
    """Send them as the options say, and fill ``replayed`` with what became of them.

    Raises KeysUnusable, ServerUnusable, ReplayUnusable, all before it begins.
    """
    async with _server(options, requests) as (server, keys):
        context = min(options.context or server.context, server.context)
        fitted = fit(requests, context, options.long)
        if not fitted.requests:
            raise ReplayUnusable(
                f"every request of the trace is left out: {fitted.too_long} are longer than the context of {context} "
                f"tokens, {fitted.empty} have no prompt or no answer"
            )
        tenants = callers.assign(fitted.requests, keys)
        bar = _Bar(len(tenants))
        content = Content(seed, *(options.token_ids or _token_ids(server.model)))
        sender = Sender(server, callers.by_tenant(keys), content, options.timeout, bar.advance)
        await sender.warm_up()
        replayed.trace = {
            "name": str(options.trace),
            "requests": len(requests),
            "cut": fitted.cut,
            "too_long": fitted.too_long,
            "empty": fitted.empty,
            "context": context,
            "model": server.model,
            "seed": seed,
        }
        replayed.records = [
            Record(tenant, request.prompt_tokens, request.output_tokens, request.at_s)
            for tenant, request in zip(tenants, fitted.requests, strict=True)
        ]
        await sender.replay(fitted.requests, replayed.records)


@asynccontextmanager
async def _server(options: argparse.Namespace, requests: Sequence[TracedRequest]) -> AsyncIterator[tuple[Server, Keys]]:
    if options.url:
        keys = callers.read_keys(options.keys)
        callers.assign(requests, keys)  # before anything is sent
        tenant, key = next(iter(callers.by_tenant(keys).items()))
        timeout_s = min(options.timeout, LIST_TIMEOUT_S)
        yield await find_model(parse_url(options.url), key, options.model, tenant=tenant, timeout_s=timeout_s), keys
        return
    if options.keys is not None:
        raise ReplayUnusable("keys are of a running server: give its --url too")
    clients = sorted({request.client for request in requests if request.client})
    tenants = clients or [f"tenant-{number}" for number in range(1, options.tenants + 1)]
    async with own_installation(tenants, options.model, options.engine) as (server, own_keys):
        yield server, own_keys


def _token_ids(model: str) -> tuple[int, int]:
    return ECHO_TOKENS if model == "echo" else (LOWEST_TOKEN, HIGHEST_TOKEN)


def _end(results: Results, options: argparse.Namespace, replayed: Replayed, incomplete: str | None) -> None:
    due = due_of(replayed.records)
    results.add_value("replay.trace", replayed.trace)
    results.add_value("replay.not_due", len(replayed.records) - len(due))
    add_figures(results, due)
    if options.html:
        write_page(Path(options.html), str(options.trace), results, due, incomplete)


def _allow_connections() -> None:
    """As many as this process may have: a slow server has ever more requests under way."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Bar:
    """How many requests are over."""

    def __init__(self, total: int) -> None:
        self._done, self._total = 0, total

    def advance(self) -> None:
        self._done += 1
        draw("replay", self._done, self._total)
