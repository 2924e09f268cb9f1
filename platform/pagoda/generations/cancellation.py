"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

AGAIN_AFTER_S = 0.2


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended.

    Asked again until they do: a library that is cancelled while it cleans up may swallow the request (redis-py does).
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_AFTER_S)
