"""A web process in the test's own event loop, with the echo engine behind it and two tenants before it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.layers import channel_layers

sys.path.insert(0, str(Path(__file__).parents[1]))

from chat_sockets import Socket, sign_in  # noqa: E402
from engine_at_hand import new_address, serving  # noqa: E402

from pagoda.chat import tasks  # noqa: E402
from pagoda.engines import connections, lifespan  # noqa: E402
from pagoda.tenants.keys import create_key  # noqa: E402
from pagoda.tenants.models import User  # noqa: E402

OpenSocket = Callable[..., Awaitable[Socket]]


@pytest.fixture
def step_ms() -> float:
    """Milliseconds per token; a module that looks into the middle of answers overrides it."""
    return 0


@pytest.fixture
def titles_asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What would have gone to the broker."""
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(tasks.title_conversation, "delay", lambda *ids: asked.append(ids))
    return asked


@pytest.fixture
def engine_options() -> dict[str, Any]:
    """Settings of the engine beyond the usual."""
    return {}


@pytest.fixture
async def engine(home: Path, settings: Any, step_ms: float, engine_options: dict[str, Any]) -> AsyncIterator[str]:
    """The address of a running engine."""
    address = new_address()
    settings.PAGODA_ENGINES = [address]
    async with serving(address, home, step_ms=step_ms, **engine_options):
        yield address


@pytest.fixture
async def web(
    transactional_db: None, acme: Any, rival: Any, engine: str, titles_asked: list[tuple[str, str]]
) -> AsyncIterator[str]:
    """What a web process starts, started; connected to the engine."""
    channel_layers.backends.clear()
    await lifespan.start()
    await (await connections.get_client(engine)).connect()
    while connections.default_model() is None:
        await asyncio.sleep(0.01)
    yield engine
    await lifespan.stop()


@pytest.fixture
async def open_socket(web: str) -> AsyncIterator[OpenSocket]:
    """Opens sockets of people: signed in, greeted, closed at the end."""
    sockets: list[Socket] = []

    async def open_one(user: User, **hello: Any) -> Socket:
        session = await database_sync_to_async(sign_in)(user)
        socket = Socket(session.session_key)
        sockets.append(socket)
        await socket.hello(**hello)
        return socket

    yield open_one
    for socket in sockets:
        await socket.close()


@pytest.fixture
async def socket(open_socket: OpenSocket, acme: Any) -> Socket:
    """A member of acme."""
    return await open_socket(acme.member)


@pytest.fixture
async def rival_socket(open_socket: OpenSocket, rival: Any) -> Socket:
    """A member of the other tenant."""
    return await open_socket(rival.member)


@pytest.fixture
def make_key(transactional_db: None) -> Callable[..., Awaitable[tuple[Any, str]]]:
    """Makes an API key of a party."""

    async def make(party: Any, **fields: Any) -> tuple[Any, str]:
        return await database_sync_to_async(create_key)(party.tenant.pk, "app", created_by=party.admin, **fields)

    return make
