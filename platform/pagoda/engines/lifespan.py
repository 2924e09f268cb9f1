"""What runs when the web process starts and stops: the ASGI lifespan protocol.

Applications register coroutine functions from their ``AppConfig.ready``; they run on the loop that serves requests,
at start in the order of registration and at stop in reverse. A start that fails stops the process with its message.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

logger = logging.getLogger(__name__)

Hook = Callable[[], Awaitable[None]]

_startup: list[Hook] = []
_shutdown: list[Hook] = []


def on_startup(hook: Hook) -> Hook:
    """Run ``hook`` before the first request is served."""
    if hook not in _startup:
        _startup.append(hook)
    return hook


def on_shutdown(hook: Hook) -> Hook:
    """Run ``hook`` after the last connection is closed. Its failure does not keep the others from running."""
    if hook not in _shutdown:
        _shutdown.append(hook)
    return hook


async def start() -> None:
    for hook in _startup:
        await hook()


async def stop() -> None:
    for hook in reversed(_shutdown):
        try:
            await hook()
        except Exception:
            logger.exception("a shutdown step failed")


async def lifespan(scope: dict[str, Any], receive: Callable, send: Callable) -> None:
    """The ASGI application for ``lifespan`` scopes."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                await start()
            except Exception as error:
                logger.exception("the web process could not start")
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
