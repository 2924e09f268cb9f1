"""A whole engine on a Unix socket in this process, with the echo model, and two tenants that use it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pagoda_inference.settings import Settings
from tests.inference.running_engine import RunningEngine, Tenant

StartEngine = Callable[..., Awaitable[RunningEngine]]


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="pagoda-") as folder:
        yield Path(folder)


@pytest.fixture
async def start_engine(socket_folder: Path) -> AsyncIterator[StartEngine]:
    """Starts engines with the echo model; keywords are fields of Settings. Invariants are checked after every step."""
    engines: list[RunningEngine] = []

    async def start(**settings: Any) -> RunningEngine:
        settings = {"model": "echo", "debug": True, "home": socket_folder, "pool_tokens": 4096, **settings}
        settings.setdefault("address", f"unix:{socket_folder}/{len(engines)}.sock")
        engine = RunningEngine(Settings(**settings))
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        if not engine.task.done():
            await engine.close()
        else:
            with suppress(Exception):
                await engine.task


@pytest.fixture
async def engine(start_engine: StartEngine) -> RunningEngine:
    """An engine with 256 blocks of 16 tokens, open to every account."""
    return await start_engine()


@pytest.fixture
async def acme(engine: RunningEngine) -> Tenant:
    """The tenant that a test works for."""
    return Tenant("acme", await engine.client())


@pytest.fixture
async def rival(engine: RunningEngine) -> Tenant:
    """Another tenant of the same engine."""
    return Tenant("rival", await engine.client())
