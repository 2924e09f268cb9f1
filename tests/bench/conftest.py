"""A server to replay against."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.bench.fake_server import FakeServer


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    served = FakeServer()
    server = await asyncio.start_server(served.handle, "127.0.0.1", 0)
    async with server:
        served.port = server.sockets[0].getsockname()[1]
        yield served
