"""Hints to everything a member has open: something changed, look again. They may be lost; nothing depends on them.

Nothing waits for them either: a channel layer that hangs must not hold up a settlement, or the thread it runs in.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

logger = logging.getLogger(__name__)

WITHIN_S = 2.0

_loop: asyncio.AbstractEventLoop | None = None


async def start() -> None:
    """Run with the server's start: hints from threads are sent on this loop."""
    global _loop
    _loop = asyncio.get_running_loop()


async def stop() -> None:
    """Run when the server stops."""
    global _loop
    _loop = None


async def send(group: str, payload: dict[str, Any], sender: str = "") -> None:
    """Pass ``payload`` to every socket of the group but the one of the channel ``sender``."""
    try:
        async with asyncio.timeout(WITHIN_S):
            await get_channel_layer().group_send(group, {"type": "hint", "payload": payload, "sender": sender})
    except Exception:
        logger.warning("a hint was lost", exc_info=True)


def send_from_thread(group: str, payload: dict[str, Any]) -> None:
    """The same from synchronous code, for ``transaction.on_commit``. In a web process it returns at once."""
    loop = _loop
    if loop is None:
        async_to_sync(send)(group, payload)
    else:
        asyncio.run_coroutine_threadsafe(send(group, payload), loop)
