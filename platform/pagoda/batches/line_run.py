"""One line under way: from its body, by the same way as a request's to the endpoint, to its answer.

The answer is put together when the last of its calls settles, so that it is written in the transaction of that
settlement: what has come of the engine by then is kept here, and nothing has to be waited for.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
from ninja.errors import ValidationError
from pydantic import ValidationError as BodyError

from pagoda.api import chat, chat_answers, completions
from pagoda.api.errors import ApiError
from pagoda.api.requests.chat import ChatCompletionRequest
from pagoda.api.requests.completions import CompletionRequest
from pagoda.api.requests.fields import Body
from pagoda.api.running import Piece, Running
from pagoda.api.token_texts import TokenTexts
from pagoda.api.validation import as_error
from pagoda.generations import calls
from pagoda.generations.calls import Ask, Call, Order
from pagoda.generations.models import Generation
from pagoda.tenants.models import ApiKey

Shape = TypeVar("Shape", bound=Body)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A line made ready. tell: from its calls, once they have ended, to the body of its answer."""

    order: Order
    asks: Sequence[Ask]
    answers: int
    grammar_param: str
    tell: Callable[[Running], Coroutine[Any, Any, msgspec.Struct]]


async def prepare(endpoint: str, body: dict[str, Any], key: ApiKey) -> Prepared:
    """Check the body and tokenise it, as the endpoint does. Raises ApiError."""
    if body.get("stream"):
        raise ApiError("unsupported_value", "The lines of a batch are not streamed.", "stream")
    if endpoint == "/v1/chat/completions":
        chat_request = _checked(ChatCompletionRequest, body)
        conversation = await chat.prepare(chat_request, key, purpose=Generation.Purpose.BATCH, request_class="batch")
        manner = conversation.manner
        return Prepared(
            manner.order,
            [conversation.ask],
            manner.answers,
            conversation.grammar_param,
            lambda running: chat_answers.completion(manner, running),
        )
    text_request = _checked(CompletionRequest, body)
    continuation = await completions.prepare(text_request, key, purpose=Generation.Purpose.BATCH, request_class="batch")
    return Prepared(
        continuation.order,
        continuation.asks,
        continuation.written,
        "response_format",
        lambda running: completions.collect(continuation, running),
    )


class LineRun(Running):
    """The calls of one line. ``collect`` reads them; from their last settlement on, ``answer`` has the whole."""

    def __init__(self, prepared: Prepared, running: Sequence[Call]) -> None:
        super().__init__(running, prepared.answers, prepared.grammar_param)
        self._prepared = prepared
        self._pieces: list[Piece] = []
        self._lock = threading.Lock()
        self._finished: dict[uuid.UUID, str] = {}
        self._last: uuid.UUID | None = None
        self.written = False
        """The line has its result, and that is committed."""
        self._cut_short = False

    @property
    def grammar_param(self) -> str:
        """The field that the line's grammar comes from."""
        return self._prepared.grammar_param

    async def collect(self) -> None:
        """Read every call to its end, which comes after its settlement. Raises ApiError."""
        texts = TokenTexts(self._prepared.order)
        parts = [Running([call], self.answers, self._prepared.grammar_param) for call in self.calls]
        try:
            async with asyncio.TaskGroup() as group:
                for number, part in enumerate(parts):
                    group.create_task(self._read(number * self.answers, part, texts))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            # A call that had told all before its reader went away may be settling now: it has everything.
            self._cut_short = any(call.usage is None for call in self.calls)

    def settled(self, generation: Generation) -> bool:
        """Note that a call of the line is being settled as complete: whether the line's answer goes with it.

        Called again for a settlement that is tried again, and from several threads.
        """
        with self._lock:
            self._finished[generation.pk] = generation.finish_reason
            if self._last is None and len(self._finished) == len(self.calls):
                self._last = generation.pk
            return self._last == generation.pk and not self._cut_short

    def note_written(self) -> None:
        """The line's result is committed."""
        self.written = True

    def answer(self) -> bytes:
        """The body of the line's answer, as JSON."""
        return msgspec.json.encode(_at_once(self._prepared.tell(self)))

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """What has come, and the ends that only the calls' own told."""
        for piece in self._pieces:
            yield piece
        ended = {piece.index for piece in self._pieces if piece.finish is not None}
        for number, call in enumerate(self.calls):
            reason = self._finished[uuid.UUID(call.id)]
            for index in range(number * self.answers, (number + 1) * self.answers):
                if index not in ended:
                    yield Piece(index, "", None, reason)

    async def _read(self, base: int, part: Running, texts: TokenTexts) -> None:
        async for piece in part.pieces():
            self._pieces.append(replace(piece, index=base + piece.index))
            if piece.delta is not None and piece.delta.logprobs:
                await texts.learn(piece.delta.logprobs)


async def begin(prepared: Prepared) -> LineRun:
    """Hold what the line may use, and begin its calls. Raises LimitReached."""
    return LineRun(prepared, await calls.current().begin(prepared.order, prepared.asks))


def _checked(shape: type[Shape], body: dict[str, Any]) -> Shape:
    try:
        return shape.model_validate(body)
    except BodyError as error:
        faults: list[dict[str, Any]] = [
            dict(fault) | {"loc": ("body", "body", *fault["loc"])} for fault in error.errors(include_url=False)
        ]
        request: Any = SimpleNamespace(json_body=body)
        raise as_error(request, ValidationError(faults)) from None


def _at_once(work: Coroutine[Any, Any, Made]) -> Made:
    """What a coroutine gives that has nothing to wait for, outside any loop."""
    try:
        work.send(None)
    except StopIteration as end:
        made: Made = end.value
        return made
    work.close()
    raise RuntimeError("an answer that has come whole waits for something")
