"""Fixtures: a web process in the test's own event loop, with the echo engine behind it and two tenants before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from channels.layers import channel_layers
from engine_at_hand import new_address, serving

from pagoda.chat import tasks
from pagoda.engines import connections, lifespan
from pagoda_inference.client import EngineClient


@pytest.fixture
def step_ms() -> float:
    """Milliseconds per token; a module that looks into the middle of answers overrides it."""
    return 0


@pytest.fixture
def engine_options() -> dict[str, Any]:
    """Settings of the engine beyond the usual."""
    return {}


@pytest.fixture
async def engine(home: Path, settings: Any, step_ms: float, engine_options: dict[str, Any]) -> AsyncIterator[str]:
    """The address of an engine that serves."""
    address = new_address()
    settings.PAGODA_ENGINES = [address]
    async with serving(address, home, step_ms=step_ms, **engine_options):
        async with EngineClient(address) as client:
            await client.connect(timeout=60)
        yield address


@pytest.fixture
def titles_asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What would have gone to the broker."""
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(tasks.title_conversation, "delay", lambda *ids: asked.append(ids))
    return asked


async def until_ready(address: str) -> None:
    """Until this process can ask the engine."""
    await (await connections.get_client(address)).connect()
    while connections.default_model() is None:  # noqa: ASYNC110  (the connection has no event for it)
        await asyncio.sleep(0.01)


@pytest.fixture
async def web(
    transactional_db: None, acme: Any, rival: Any, engine: str, titles_asked: list[tuple[str, str]]
) -> AsyncIterator[str]:
    """What a web process starts, started; connected to the engine, whose address it is."""
    channel_layers.backends.clear()
    await lifespan.start()
    await until_ready(engine)
    yield engine
    await lifespan.stop()
