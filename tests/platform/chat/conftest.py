"""Sockets of people of two tenants."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async

sys.path.insert(0, str(Path(__file__).parents[1]))

from chat_sockets import Socket, sign_in
from web_process import engine, engine_options, step_ms, titles_asked, web

from pagoda.tenants.keys import create_key
from pagoda.tenants.models import User
from pagoda_inference.model.backend import Chunk, Result
from pagoda_inference.model.echo import EchoBackend

__all__ = ["engine", "engine_options", "step_ms", "titles_asked", "web"]

OpenSocket = Callable[..., Awaitable[Socket]]


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, it lets the engine in this process take no longer for a step than it must, whatever ``step_ms`` is."""
    hurried: list[bool] = []
    run = EchoBackend.run

    def run_in_time(backend: EchoBackend, chunks: Sequence[Chunk]) -> list[Result]:
        if hurried:
            backend._step_s = 0
        return run(backend, chunks)

    monkeypatch.setattr(EchoBackend, "run", run_in_time)
    return lambda: hurried.append(True)


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
