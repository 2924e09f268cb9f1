"""The generations that one socket follows: a task each, so that none holds up another, or the socket's requests."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from pagoda.chat.limits import STREAMS_PER_SOCKET
from pagoda.chat.requests import RequestRefused
from pagoda.generations import stream
from pagoda.generations.cancellation import end

logger = logging.getLogger(__name__)

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Streams:
    """Each task sends its events itself and waits while the client does not read: nothing is buffered here."""

    def __init__(self, tenant_id: uuid.UUID, send: Send) -> None:
        self._tenant_id = tenant_id
        self._send = send
        self._tasks: dict[uuid.UUID, asyncio.Task[None]] = {}

    def check_room(self, generation_id: uuid.UUID | None = None) -> None:
        """Raises RequestRefused when one more generation would be too many."""
        if len(self._tasks) >= STREAMS_PER_SOCKET and generation_id not in self._tasks:
            raise RequestRefused(
                "rate_limited",
                f"A socket follows {STREAMS_PER_SOCKET} generations at most: detach from one.",
                retry_after_s=1.0,
            )

    def __contains__(self, generation_id: uuid.UUID) -> bool:
        return generation_id in self._tasks

    async def attach(self, generation_id: uuid.UUID, message_id: uuid.UUID, after_seq: int = 0) -> None:
        """Send the events after ``after_seq`` from now on; replaces what this socket had of the generation."""
        await self.detach(generation_id)
        self._start(generation_id, self._follow(generation_id, message_id, after_seq))

    def await_receipt(self, generation_id: uuid.UUID, message_id: uuid.UUID) -> None:
        """Send ``finished`` alone, to a socket that is not attached."""
        if generation_id not in self._tasks:
            self._start(generation_id, self._receipt(generation_id, message_id))

    async def detach(self, generation_id: uuid.UUID) -> None:
        """Send nothing more of a generation."""
        task = self._tasks.pop(generation_id, None)
        if task is not None:
            await end([task])

    async def close(self) -> None:
        """Send nothing more."""
        tasks, self._tasks = list(self._tasks.values()), {}
        await end(tasks)

    def _start(self, generation_id: uuid.UUID, work: Any) -> None:
        task = asyncio.create_task(work, name=f"stream {generation_id}")
        self._tasks[generation_id] = task
        task.add_done_callback(lambda done: self._forget(generation_id, done))

    def _forget(self, generation_id: uuid.UUID, task: asyncio.Task[None]) -> None:
        if self._tasks.get(generation_id) is task:
            del self._tasks[generation_id]

    async def _follow(self, generation_id: uuid.UUID, message_id: uuid.UUID, after_seq: int) -> None:
        try:
            async for event in stream.follow(self._tenant_id, generation_id, after_seq):
                await self._send(event | {"message_id": str(message_id)})
        except Exception as error:
            await self._report(generation_id, error)

    async def _receipt(self, generation_id: uuid.UUID, message_id: uuid.UUID) -> None:
        try:
            event = await stream.wait_settled(self._tenant_id, generation_id)
            await self._send(event | {"message_id": str(message_id)})
        except Exception as error:
            await self._report(generation_id, error)

    async def _report(self, generation_id: uuid.UUID, error: Exception) -> None:
        if isinstance(error, stream.GenerationUnknown):
            code, message = "not_found", "This generation was erased."
        else:
            logger.exception("following generation %s failed", generation_id)
            code, message = "internal", "The answer cannot be followed now: attach again."
        await self._send({"type": "error", "generation_id": str(generation_id), "code": code, "message": message})
