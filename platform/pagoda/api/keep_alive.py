"""Streams in which nothing happens for a while: a comment now and then, so that no proxy takes them for dead.

Readers of server-sent events skip lines that begin with a colon (HTML Standard, 9.2.6). Sent beside the events, at the
last moment before the network, so that they cost an event nothing and are never part of what is recorded of a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Send = Callable[[Mapping[str, Any]], Awaitable[None]]

COMMENT = b": keep-alive\n\n"
_EVENT_STREAM = (b"content-type", b"text/event-stream")


class KeepAlive:
    """The ``send`` of one request, which begins to speak up once a stream of events has begun.

    interval_s: seconds without an event, after each of which a comment is sent. Close it when the request is over.
    """

    def __init__(self, send: Send, interval_s: float) -> None:
        self._send = send
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._last = 0.0
        self._between_events = True
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Pass the server's message on."""
        if message["type"] == "http.response.start":
            if any((name.lower(), value[:17]) == _EVENT_STREAM for name, value in message["headers"]):
                self._last = self._loop.time()
                self._wait()
        elif self._timer is not None:
            self._silence()
            self._last = self._loop.time()
            # Long events come in several pieces, and nothing may stand within them.
            self._between_events = message.get("body", b"").endswith(b"\n\n")
            if not message.get("more_body"):
                self.close()
        await self._send(message)

    def close(self) -> None:
        """Nothing more is sent."""
        self._silence()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _silence(self) -> None:
        """A comment that waits for a slow reader gives way."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _wait(self) -> None:
        self._timer = self._loop.call_at(self._last + self._interval_s, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._last + self._interval_s:
            self._last = now
            if self._between_events and (self._sending is None or self._sending.done()):
                comment = {"type": "http.response.body", "body": COMMENT, "more_body": True}
                self._sending = asyncio.ensure_future(self._send(comment))
        self._wait()
