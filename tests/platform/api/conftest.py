"""The API as its clients meet it: over HTTP, with the echo engine behind it, and keys of two tenants."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from channels.db import database_sync_to_async
from channels.layers import channel_layers
from openai import AsyncOpenAI

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from web_process import engine, engine_options, step_ms, titles_asked, until_ready

from pagoda.api import authentication
from pagoda.asgi import application
from pagoda.tenants.keys import create_key

__all__ = ["engine", "engine_options", "step_ms", "titles_asked"]

MakeKey = Callable[..., Awaitable[tuple[Any, str]]]


@pytest.fixture
async def site(
    transactional_db: None, acme: Any, rival: Any, engine: str, titles_asked: list[tuple[str, str]]
) -> AsyncIterator[str]:
    """The web process, on a port of its own: its address. Connected to the engine."""
    channel_layers.backends.clear()
    authentication.forget_keys()
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, lifespan="on", log_level="warning"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server._serve([listening]))
    while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    await until_ready(engine)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    await task


@pytest.fixture
def make_key(transactional_db: None) -> MakeKey:
    """Makes an API key of a party: the row and the text."""

    async def make(party: Any, **fields: Any) -> tuple[Any, str]:
        return await database_sync_to_async(create_key)(party.tenant.pk, "app", created_by=party.admin, **fields)

    return make


@pytest.fixture
async def key(make_key: MakeKey, acme: Any) -> str:
    return (await make_key(acme))[1]


@pytest.fixture
async def rival_key(make_key: MakeKey, rival: Any) -> str:
    return (await make_key(rival))[1]


@pytest.fixture
async def http(site: str, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """A plain client with acme's key."""
    async with httpx.AsyncClient(
        base_url=f"{site}/v1", headers={"authorization": f"Bearer {key}"}, timeout=30, trust_env=False
    ) as client:
        yield client


@pytest.fixture
async def client(site: str, key: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's own client with acme's key."""
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture
async def rival_client(site: str, rival_key: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's own client with the rival's key."""
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=rival_key, max_retries=0) as client:
        yield client
