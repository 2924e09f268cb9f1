"""An engine in this process and its callers, for tests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from pagoda_inference.client import EngineClient, Subscription
from pagoda_inference.daemon import serve
from pagoda_inference.protocol import Delta, Event, Finished, Generate, PoolReport, Sampling, Started, method_path
from pagoda_inference.settings import Settings

_numbers = itertools.count(1)


@dataclass
class Answer:
    """All events of a generation, in order."""

    events: list[Event] = field(default_factory=list)

    @property
    def started(self) -> Started:
        return next(event for event in self.events if isinstance(event, Started))

    @property
    def finished(self) -> Finished:
        last = self.events[-1]
        assert isinstance(last, Finished), f"unfinished: {last}"
        return last

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Delta))

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token for event in self.events if isinstance(event, Delta) for token in event.token_ids)

    @property
    def seqs(self) -> list[int]:
        return [event.seq for event in self.events]


class Tenant:
    """One tenant as the platform acts for it: its account, its scope, a client."""

    def __init__(self, account: str, client: EngineClient) -> None:
        self.account = account
        self.client = client

    def command(self, prompt: str = "Tell me about pagodas.", *, id: str | None = None, **options: Any) -> Generate:
        """A Generate of raw text. Fields of Sampling and of Generate are both taken from ``options``."""
        sampling = {name: options.pop(name) for name in Sampling.__struct_fields__ if name in options}
        id = id or f"generation-{next(_numbers)}"
        if not {"messages", "prompt_token_ids"} & set(options):
            options["prompt"] = prompt
        options.setdefault("scope", f"tenant:{self.account}")
        return Generate(id=id, account=self.account, sampling=Sampling(**sampling), **options)

    def start(self, prompt: str = "Tell me about pagodas.", **options: Any) -> Subscription:
        return self.client.generate(self.command(prompt, **options))

    async def answer(self, prompt: str = "Tell me about pagodas.", **options: Any) -> Answer:
        return await read(self.start(prompt, **options))

    def attach(self, id: str, after_seq: int = 0) -> Subscription:
        return self.client.attach(id, self.account, after_seq)


async def read(subscription: Subscription, count: int | None = None) -> Answer:
    """The next ``count`` events, or all that are left."""
    answer = Answer()
    if count != 0:
        async for event in subscription:
            answer.events.append(event)
            if len(answer.events) == count:
                break
    return answer


@asynccontextmanager
async def raw_stream(address: str) -> AsyncIterator[Any]:
    """A Stream call without the client around it: bytes in, bytes out."""
    options = [("grpc.http2.bdp_probe", 0)]  # what is not read yet is bounded
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stream = channel.stream_stream(method_path("Stream"))()
        await stream.wait_for_connection()
        yield stream
        stream.cancel()


class RunningEngine:
    """A daemon in this process, on its own socket."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.address = settings.engine_address
        self._stop = asyncio.Event()
        self.task = asyncio.create_task(serve(settings, self._stop))
        self._clients: list[EngineClient] = []

    async def client(self, token: str | None = None) -> EngineClient:
        """A connected client, closed with the engine."""
        client = EngineClient(self.address, token)
        self._clients.append(client)
        await client.connect(60)
        return client

    async def report(self) -> PoolReport:
        async with EngineClient(self.address, self.settings.token or None) as client:
            await client.connect(60)
            return await anext(client.watch(0))

    def ask_to_stop(self) -> None:
        self._stop.set()

    async def stopped(self) -> bool:
        """Wait for the end; whether it was a good one."""
        return await asyncio.wait_for(self.task, 60)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        self._stop.set()
        healthy = await self.stopped()
        assert healthy, "the engine failed (in debug mode: an invariant was broken)"
