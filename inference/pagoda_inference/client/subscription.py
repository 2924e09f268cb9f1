"""A caller's view of one generation: its events, in order, as they arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pagoda_inference.client.errors import EngineRefused
from pagoda_inference.protocol import Event, Finished, Refused, Reply


class Subscription:
    """``async for event in subscription``: Started, Delta…, Finished; ends after Finished, or by ``close``.

    Raises EngineRefused when the engine refuses, EngineUnavailable when the connection breaks; ``last_seq`` is then
    where ``attach`` goes on. Belongs to one consumer. What arrived unread is kept here: a generation at most.
    """

    def __init__(self, id: str, account: str, after_seq: int, leave: Callable[[Subscription], None]) -> None:
        self.id = id
        self.account = account
        self.last_seq = after_seq
        """seq of the event read last."""
        self._leave = leave
        self._events: deque[Event] = deque()
        self._error: Exception | None = None
        self._ended = False
        self._arrival = asyncio.Event()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._arrival.clear()
            await self._arrival.wait()
        event = self._events.popleft()
        self.last_seq = event.seq
        return event

    def close(self) -> None:
        """Unsubscribe. The generation goes on, unless it was to be cancelled when nobody listens."""
        self._events.clear()
        if not self._ended:
            self.end()
            self._leave(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for the client -----------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Nothing more will arrive."""
        return self._ended

    def receive(self, replies: tuple[Reply, ...]) -> None:
        """Replies from the wire."""
        for reply in replies:
            if isinstance(reply, Refused):
                self.end(EngineRefused(reply.error))
                return
            self._events.append(reply)
            if isinstance(reply, Finished):
                self.end()
        self._arrival.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more will arrive; ``error`` is raised after what did."""
        if not self._ended:
            self._ended = True
            self._error = error
        self._arrival.set()
