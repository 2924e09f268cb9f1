"""From the options to the figures."""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.http_client import Refused
from bench.progress import draw
from bench.replay import callers
from bench.replay.callers import Keys, KeysUnusable
from bench.replay.figures import add_figures, due_of
from bench.replay.options import ECHO_TOKENS, HIGHEST_TOKEN, LOWEST_TOKEN, seed_of
from bench.replay.page import write_page
from bench.replay.record import Record
from bench.replay.sending import Sender
from bench.replay.server import Server, ServerUnusable, find_model, own_installation, parse_url
from bench.results import Results
from bench.traces import arrivals
from bench.traces.content import Content
from bench.traces.errors import TraceMissing
from bench.traces.fitting import fit
from bench.traces.named import named
from bench.traces.request import TracedRequest

LAW_REQUESTS = 200
QUICK_REQUESTS = 50


def run(results: Results, options: argparse.Namespace) -> None:
    if options.trace is None:
        raise SystemExit("replay needs a trace: --trace NAME_OR_PATH")
    if options.url and options.keys is None:
        raise SystemExit("replay needs API keys of the server: --keys FILE")
    seed = seed_of(options)
    try:
        requests = trace_of(options, random.Random(seed))
    except TraceMissing as missing:
        results.skip("replay", str(missing))
        return
    records: list[Record] = []
    _allow_connections()
    try:
        asyncio.run(replay(results, options, requests, records, seed))
    except (KeysUnusable, ServerUnusable) as error:
        raise SystemExit(f"bench: {error}") from None
    finally:
        if any(record.sent_s is not None for record in records):
            _end(results, options, records)


def trace_of(options: argparse.Namespace, rng: random.Random) -> list[TracedRequest]:
    """As asked for: read, cut to its first requests, brought to a rate or a speed, cut to seconds.

    Raises TraceMissing, TraceMalformed, SystemExit for a trace without arrivals and no rate to give it.
    """
    requests = named(options.trace, options.traces, options.requests or LAW_REQUESTS, rng)
    requests = arrivals.cut(requests, count=options.requests or (QUICK_REQUESTS if options.quick else None))
    if not requests:
        raise SystemExit(f"the trace {options.trace} has no requests")
    if arrivals.has_arrivals(requests):
        if options.rate:
            # The part that is replayed is brought to the rate: a trace has quiet minutes, and this may be one.
            count = max(2, round(options.rate * options.seconds)) if options.seconds else None
            requests = arrivals.at_rate(arrivals.cut(requests, count=count), options.rate)
        elif options.speed:
            requests = arrivals.at_speed(requests, options.speed)
    elif options.rate:
        requests = arrivals.poisson(requests, options.rate, rng)
    else:
        raise SystemExit(f"the trace {options.trace} does not say when its requests arrive: give --rate")
    return arrivals.cut(requests, seconds=options.seconds)


async def replay(
    results: Results, options: argparse.Namespace, requests: list[TracedRequest], records: list[Record], seed: int
) -> None:
    """Send them as the options say, and fill ``records`` with what became of them, one for each request that is sent.

    Raises KeysUnusable, ServerUnusable.
    """
    async with _server(options, requests) as (server, keys):
        context = min(options.context or server.context, server.context)
        fitted = fit(requests, context, options.long)
        tenants = callers.assign(fitted.requests, keys)
        results.add_value(
            "replay.trace",
            {
                "name": str(options.trace),
                "requests": len(requests),
                "cut": fitted.cut,
                "too_long": fitted.too_long,
                "empty": fitted.empty,
                "context": context,
                "model": server.model,
                "seed": seed,
            },
        )
        records += [
            Record(tenant, request.prompt_tokens, request.output_tokens, request.at_s)
            for tenant, request in zip(tenants, fitted.requests, strict=True)
        ]
        bar = _Bar(len(records))
        content = Content(seed, *(options.token_ids or _token_ids(server.model)))
        sender = Sender(server, callers.by_tenant(keys), content, options.timeout, bar.advance)
        try:
            await sender.warm_up()
        except (Refused, OSError, EOFError) as error:
            raise ServerUnusable(f"a first request of one token failed: {error}") from None
        await sender.replay(fitted.requests, records)


@asynccontextmanager
async def _server(options: argparse.Namespace, requests: Sequence[TracedRequest]) -> AsyncIterator[tuple[Server, Keys]]:
    if options.url:
        keys = callers.read_keys(options.keys)
        callers.assign(requests, keys)  # before anything is sent
        first = next(iter(callers.by_tenant(keys).values()))
        yield await find_model(parse_url(options.url), first, options.model), keys
        return
    if options.keys is not None:
        raise SystemExit("keys are of a running server: give its --url too")
    clients = sorted({request.client for request in requests if request.client})
    tenants = clients or [f"tenant-{number}" for number in range(1, options.tenants + 1)]
    async with own_installation(tenants, options.model, options.engine) as (server, own_keys):
        yield server, own_keys


def _token_ids(model: str) -> tuple[int, int]:
    return ECHO_TOKENS if model == "echo" else (LOWEST_TOKEN, HIGHEST_TOKEN)


def _end(results: Results, options: argparse.Namespace, records: Sequence[Record]) -> None:
    due = due_of(records)
    results.add_value("replay.not_due", len(records) - len(due))
    add_figures(results, due)
    if options.html:
        write_page(Path(options.html), str(options.trace), results, due)


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
