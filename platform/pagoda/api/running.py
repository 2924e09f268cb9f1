"""The calls behind one request: begun together, read as one, and ended when their caller goes away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from pagoda.api.engine_errors import refused, unavailable
from pagoda.api.errors import ApiError
from pagoda.api.limit_errors import limit_reached
from pagoda.generations import calls
from pagoda.generations.calls import Ask, Call, Order
from pagoda.generations.database_threads import in_database
from pagoda.tenants.models import ApiKey
from pagoda.tenants.scoping import tenant_scope
from pagoda.usage import admission
from pagoda.usage.admission import LimitReached, RateState
from pagoda_inference.client import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import Delta, Error, Event, Finished, Started


@dataclass(frozen=True, slots=True)
class Piece:
    """What came of an answer: choice ``index``'s next text, or its end. delta: None where nothing was written."""

    index: int
    text: str
    delta: Delta | None = None
    finish: str | None = None


class Running:
    """Calls whose answers are numbered through: ``answers`` to each prompt.

    Used as ``async with``: however it is left, no call goes on without a reader.
    """

    def __init__(
        self, running: Sequence[Call], answers: int, grammar_param: str, prompt_param: str | None = None
    ) -> None:
        self.calls = running
        self._grammar_param = grammar_param
        self._prompt_param = prompt_param
        self.answers = answers
        self.cut_short: Error | None = None
        """What the engine says where an answer grew to all the memory that the tenant can have."""
        self._events = [call.events() for call in running]
        self._first: list[Event] = []
        self._admission: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Running:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def rates(self) -> RateState:
        """The limits of key and tenant, with all calls counted."""
        return self.calls[-1].rates

    def close(self) -> None:
        """Cancel whatever has not ended."""
        if self._admission is not None and not self._admission.cancel() and not self._admission.cancelled():
            self._admission.exception()  # which nobody may have read
        for call in self.calls:
            call.abandon()

    async def admitted(self, within_s: float) -> None:
        """Until the engine has taken in every prompt, or so long; ``pieces`` waits for the rest. Raises ApiError."""
        self._admission = asyncio.create_task(self._admit())
        await asyncio.wait({self._admission}, timeout=within_s)
        if self._admission.done():
            self._admission.result()

    async def _admit(self) -> None:
        for call in self.calls:
            with contextlib.suppress(EngineUnavailable):  # which its events say again
                await call.open()
        self._first = [await self._next(events) for events in self._events]

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """What is written, as it comes, and the end of each answer. Raises ApiError."""
        if self._admission is not None:
            await self._admission
        numbered = _merged(self._events) if len(self._events) > 1 else _single(self._events[0])
        ended: set[int] = set()
        for number, event in enumerate(self._first):
            for piece in self._pieces_of(number, event, ended):
                yield piece
        async with aclosing(numbered) as events:
            try:
                async for number, event in events:
                    for piece in self._pieces_of(number, event, ended):
                        yield piece
            except EngineRefused as error:
                raise self._refused(error.error) from error
            except EngineUnavailable as error:
                raise unavailable() from error

    @property
    def prompt_tokens(self) -> int:
        return sum(call.usage.prompt_tokens for call in self.calls if call.usage)

    @property
    def cached_tokens(self) -> int:
        return sum(call.usage.cached_tokens for call in self.calls if call.usage)

    @property
    def output_tokens(self) -> int:
        return sum(call.usage.output_tokens for call in self.calls if call.usage)

    async def _next(self, events: AsyncGenerator[Event, None]) -> Event:
        try:
            return await anext(events)
        except EngineRefused as error:
            raise self._refused(error.error) from error
        except EngineUnavailable as error:
            raise unavailable() from error

    def _pieces_of(self, number: int, event: Event, ended: set[int]) -> list[Piece]:
        if isinstance(event, Started):
            return []
        base = number * self.answers
        if isinstance(event, Delta):
            index = base + event.index
            if event.finish_reason is not None:
                ended.add(index)
            return [Piece(index, event.text, event, event.finish_reason)]
        self.cut_short = self.cut_short or event.limit_reached
        self._check(number, event)
        return [
            Piece(index, "", None, event.reason) for index in range(base, base + self.answers) if index not in ended
        ]

    def _refused(self, error: Error) -> ApiError:
        return refused(error, self._grammar_param, self._prompt_param)

    def _check(self, number: int, event: Finished) -> None:
        if event.error is not None:
            raise self._refused(event.error)
        if event.reason == "cancelled":
            if self.calls[number].revoked:
                raise ApiError(
                    "invalid_api_key",
                    "The API key was revoked, expired or lost its scope, or its tenant was suspended.",
                )
            raise ApiError("engine_unavailable", "The answer was stopped by an operator.")


async def begin(
    order: Order, asks: Sequence[Ask], answers: int, *, prompt_param: str, grammar_param: str = "response_format"
) -> Running:
    """Hold what the asks need and begin them. prompt_param, grammar_param: the fields that those come from.

    Raises ApiError: a limit has no room.
    """
    try:
        return Running(await calls.current().begin(order, asks), answers, grammar_param, prompt_param)
    except LimitReached as reached:
        raise limit_reached(reached, await in_database(_rates, order.key)) from None


def _rates(key: ApiKey) -> RateState:
    with tenant_scope(key.tenant_id):
        return admission.rate_state(key)


async def _single(events: AsyncGenerator[Event, None]) -> AsyncGenerator[tuple[int, Event], None]:
    async for event in events:
        yield 0, event


async def _merged(many: Sequence[AsyncGenerator[Event, None]]) -> AsyncGenerator[tuple[int, Event], None]:
    """Events of several calls in the order they come. The first failure ends all."""
    queue: asyncio.Queue[tuple[int, Event | Exception | None]] = asyncio.Queue()

    async def read(number: int, events: AsyncGenerator[Event, None]) -> None:
        try:
            async for event in events:
                queue.put_nowait((number, event))
        except Exception as error:
            queue.put_nowait((number, error))
        else:
            queue.put_nowait((number, None))

    readers = [asyncio.create_task(read(number, events)) for number, events in enumerate(many)]
    left = len(readers)
    try:
        while left:
            number, event = await queue.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                left -= 1
            else:
                yield number, event
    finally:
        for reader in readers:
            reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*readers, return_exceptions=True)
