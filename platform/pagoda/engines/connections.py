"""This process's connections to the engines.

The web process keeps one async client per engine on the loop that serves requests, and a watch on each (1 Hz). Admin
views, management commands and the worker use ``sync_client``: opened for one piece of work, never kept across a fork.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from django.conf import settings

from pagoda.engines import reports
from pagoda.engines.routing import engine_for
from pagoda_inference.client import EngineClient, EngineRefused, EngineUnavailable, SyncEngineClient
from pagoda_inference.protocol import ModelInfo, PoolReport

__all__ = [
    "address_of",
    "before_admission",
    "default_model",
    "engine_for",
    "get_client",
    "model_of",
    "report_listeners",
    "start",
    "stop",
    "sync_client",
]

logger = logging.getLogger(__name__)

FIRST_CONNECT_S = 1.0
RETRY_S = 0.5
REFUSED_RETRY_S = 5.0
WATCH_INTERVAL_S = 1.0

before_admission: list[Callable[[EngineClient, ModelInfo], Awaitable[None]]] = []
"""What an engine must be told before it is asked anything. Called after every (re)connection; one that raises ends the
connection, and it is tried again."""

report_listeners: list[Callable[[EngineClient, ModelInfo, PoolReport], Awaitable[None]]] = []
"""Called with every report of every engine, on the server's loop. A failure is logged and stops nobody else."""

_clients: dict[str, EngineClient] = {}
_models: dict[str, ModelInfo] = {}
_watches: list[asyncio.Task[None]] = []


async def get_client(address: str) -> EngineClient:
    """The client of this process for an engine. Call it on the server's loop.

    The client connects by itself and again after a break; ``await client.connect()`` waits until it is ready. Raises
    EngineUnavailable for an address that is not in PAGODA_ENGINES (any more): rows remember engines for longer.
    """
    if address not in settings.PAGODA_ENGINES:
        raise EngineUnavailable(f"{address} is not one of PAGODA_ENGINES")
    client = _clients.get(address)
    if client is None:
        client = _clients[address] = EngineClient(address, settings.PAGODA_ENGINE_TOKEN)
        client.on_connect.append(_introduce(address))
        # Later callers get the client as it is: while it has no connection, everything fails at once.
        with suppress(EngineUnavailable, EngineRefused):
            await client.connect(FIRST_CONNECT_S)
    return client


def sync_client(address: str, timeout_s: float = 2.0) -> SyncEngineClient:
    """A blocking client, for ``with``. ``timeout_s`` bounds each call: admin views and tasks wait for it."""
    return SyncEngineClient(address, settings.PAGODA_ENGINE_TOKEN, timeout=timeout_s)


def address_of(client: EngineClient) -> str:
    """The address of this process's client as PAGODA_ENGINES writes it."""
    return next(address for address, each in _clients.items() if each is client)


def model_of(address: str) -> ModelInfo | None:
    """What an engine serves, as it said when this process last connected to it."""
    return _models.get(address)


def default_model() -> ModelInfo | None:
    """The model of the first engine that is reachable now; None while none is. Never waits."""
    for address in settings.PAGODA_ENGINES:
        if address in _models and reports.is_reachable(address):
            return _models[address]
    return None


async def start() -> None:
    """Connect to every engine in the background: the site starts whether or not an engine is there."""
    for address in settings.PAGODA_ENGINES:
        _watches.append(asyncio.create_task(_watch(address), name=f"watch {address}"))


async def stop() -> None:
    """End the watches and close the clients."""
    for watch in _watches:
        watch.cancel()
    await asyncio.gather(*_watches, return_exceptions=True)
    _watches.clear()
    for client in _clients.values():
        await client.close()
    _clients.clear()
    _models.clear()
    reports.forget_all()


def _introduce(address: str) -> Callable[[EngineClient, ModelInfo], Awaitable[None]]:
    async def introduce(client: EngineClient, info: ModelInfo) -> None:
        """Tell a newly connected engine what it must know, before anything else reaches it."""
        _models[address] = info
        for tell in before_admission:
            await tell(client, info)
        reports.mark_reachable(address)

    return introduce


async def _watch(address: str) -> None:
    """Follow one engine's reports for as long as the process lives."""
    while True:
        try:
            client = await get_client(address)
            info = await client.connect()
            async for report in client.watch(WATCH_INTERVAL_S):
                reports.remember(address, report)
                await _tell_listeners(client, _models.get(address, info), report)
        except EngineUnavailable as error:
            if reports.is_reachable(address):
                logger.warning("engine %s is gone: %s", address, error)
        except EngineRefused as error:
            logger.error("engine %s refuses this process: %s", address, error)
            await asyncio.sleep(REFUSED_RETRY_S)
        except Exception:
            logger.exception("the watch on engine %s failed", address)
        reports.mark_unreachable(address)
        await asyncio.sleep(RETRY_S)


async def _tell_listeners(client: EngineClient, info: ModelInfo, report: PoolReport) -> None:
    for listener in report_listeners:
        try:
            await listener(client, info, report)
        except EngineUnavailable:
            raise
        except Exception:
            logger.exception("a listener of pool reports failed")
