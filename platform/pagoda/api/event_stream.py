"""Streamed answers: server-sent events, as OpenAI's clients read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from django.http import StreamingHttpResponse

from pagoda.api.errors import ApiError


class Last(bytes):
    """The event that a stream ends with when nothing went wrong."""


class Failed(bytes):
    """The event of an error, which a stream ends with."""


DONE = Last(b"data: [DONE]\n\n")


def event(data: bytes) -> bytes:
    """One event of a stream."""
    return b"data: " + data + b"\n\n"


def named_event(name: str, data: bytes) -> bytes:
    """One event of a stream whose events have names."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class EventStream(StreamingHttpResponse):
    """Events as they come. ``close`` is called once the stream is over, however it ends, also where it never began."""

    def __init__(self, events: AsyncGenerator[bytes, None], close: Callable[[], Any], headers: dict[str, str]) -> None:
        super().__init__(content_type="text/event-stream", headers=headers)
        self["cache-control"] = "no-cache"
        # Proxies that buffer would hold the events back.
        self["x-accel-buffering"] = "no"
        self.events = events
        self.on_close(close)

    def on_close(self, close: Callable[[], Any]) -> None:
        """Call ``close`` too, on the loop that runs now: Django closes responses in a thread."""
        loop = asyncio.get_running_loop()
        self._resource_closers.append(lambda: loop.call_soon_threadsafe(close))  # type: ignore[attr-defined]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.events


async def ended_by_error(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The events; an ApiError on the way becomes the last of them, since the status is sent already."""
    try:
        async for each in events:
            yield each
    except ApiError as error:
        yield Failed(event(error.event()))
    finally:
        await events.aclose()
