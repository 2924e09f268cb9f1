"""Generations without sockets: made, recorded and followed by the test itself."""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async

sys.path.insert(0, str(Path(__file__).parents[1]))

from web_process import engine, engine_options, step_ms, titles_asked, web

from pagoda.generations import service
from pagoda.generations.models import Generation
from pagoda.generations.recorder import Recorder
from pagoda.tenants.scoping import tenant_scope
from pagoda_inference.client import EngineClient
from pagoda_inference.protocol import ChatMessage, Sampling

__all__ = ["engine", "engine_options", "step_ms", "titles_asked", "web"]

Create = Callable[..., Awaitable[Generation]]


@pytest.fixture
def create(web: str) -> Create:
    """Writes a generation of a party's member."""

    def write(party: Any, question: str, fields: dict[str, Any]) -> Generation:
        with tenant_scope(party.tenant.pk):
            return service.create(
                tenant=party.tenant,
                user=party.member,
                messages=[ChatMessage("user", question)],
                purpose=Generation.Purpose.API,  # whose text no conversation keeps
                sampling=fields.pop("sampling", Sampling()),
                lineage=str(uuid.uuid4()),
                model="echo",
                **fields,
            )

    async def make(party: Any, question: str, **fields: Any) -> Generation:
        return await database_sync_to_async(write)(party, question, fields)

    return make


@pytest.fixture
async def make_recorder(web: str) -> AsyncIterator[Callable[[], Awaitable[Recorder]]]:
    """Makes recorders of other processes: each with a connection of its own, opened and closed by the test."""
    clients: list[EngineClient] = []
    recorders: list[Recorder] = []

    async def make() -> Recorder:
        client = EngineClient(web)
        await client.connect()
        clients.append(client)

        async def connect(address: str) -> EngineClient:
            return client

        recorders.append(Recorder(connect))
        return recorders[-1]

    yield make
    for recorder in recorders:
        await recorder.close()
    for client in clients:
        await client.close()
