"""Answers to a conversation as chat completions tell them: whole, or chunk by chunk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

import msgspec

from pagoda.api import answers, usage
from pagoda.api.event_stream import DONE, event
from pagoda.api.running import Piece, Running
from pagoda.api.token_texts import TokenTexts
from pagoda.api.tools import AnswerReader, CallArguments, CallBegun
from pagoda.api.wire import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatFinish,
    ChatMessage,
    ChoiceLogprobs,
    FunctionCall,
    FunctionCallDelta,
    ToolCall,
    ToolCallDelta,
)
from pagoda.generations.calls import Order

_encode = msgspec.json.Encoder().encode

Found = str | CallBegun | CallArguments


@dataclass(frozen=True, slots=True)
class Manner:
    """How the answers to one request are told. calls: functions may be called in them."""

    order: Order
    id: str
    created: int
    fingerprint: str
    answers: int
    include_usage: bool
    calls: bool
    logprobs: bool


async def completion(manner: Manner, running: Running) -> ChatCompletion:
    """All answers, whole. Raises ApiError."""
    texts = TokenTexts(manner.order)
    choices = []
    for index, answer in enumerate(await answers.whole(running)):
        logprobs = None
        if manner.logprobs:
            await texts.learn(answer.logprobs)
            logprobs = texts.of_chat(answer.logprobs)
        message, called = _message(manner, answer.text)
        choices.append(ChatChoice(index, message, finish_of(answer.finish, called), logprobs))
    return ChatCompletion(
        id=manner.id,
        created=manner.created,
        model=manner.order.model.id,
        choices=choices,
        usage=usage.of(running),
        system_fingerprint=manner.fingerprint,
    )


async def chunks(manner: Manner, running: Running) -> AsyncGenerator[bytes, None]:
    """Events, from the role of each choice to [DONE]. Raises ApiError."""
    readers = [AnswerReader() for _ in range(manner.answers)] if manner.calls else []
    texts = TokenTexts(manner.order)
    async with running:
        for index in range(manner.answers):
            # With functions it is not known yet whether there will be a text.
            yield _chunk(manner, [ChatChunkChoice(index, ChatDelta("assistant", None if readers else ""))])
        async for piece in running.pieces():
            logprobs = await _logprobs(manner, texts, piece)
            for delta in _deltas(piece, readers):
                yield _chunk(manner, [ChatChunkChoice(piece.index, delta, None, logprobs)])
                logprobs = None
            if logprobs is not None:
                yield _chunk(manner, [ChatChunkChoice(piece.index, ChatDelta(), None, logprobs)])
            if piece.finish is not None:
                called = bool(readers) and _called(readers[piece.index])
                yield _chunk(manner, [ChatChunkChoice(piece.index, ChatDelta(), finish_of(piece.finish, called))])
        if manner.include_usage:
            yield _chunk(manner, [], running)
        yield DONE


def finish_of(reason: str, called: bool) -> ChatFinish:
    """The engine's reason in OpenAI's words. called: the answer calls functions, all of which are whole."""
    if reason == "length":
        return "length"
    return "tool_calls" if called else "stop"


def _chunk(manner: Manner, choices: list[ChatChunkChoice], ended: Running | None = None) -> bytes:
    told = usage.of(ended) if ended is not None else None
    chunk = ChatChunk(
        id=manner.id,
        created=manner.created,
        model=manner.order.model.id,
        choices=choices,
        system_fingerprint=manner.fingerprint,
        usage=told if manner.include_usage else msgspec.UNSET,
    )
    return event(_encode(chunk))


def _deltas(piece: Piece, readers: list[AnswerReader]) -> Iterable[ChatDelta]:
    if not readers:
        if piece.text:
            yield ChatDelta(content=piece.text)
        return
    for each in readers[piece.index].read(piece.text):
        yield _delta(each)


def _delta(found: Found) -> ChatDelta:
    if isinstance(found, str):
        return ChatDelta(content=found)
    if isinstance(found, CallBegun):
        function = FunctionCallDelta(found.name, "")
        return ChatDelta(tool_calls=[ToolCallDelta(found.index, found.id, "function", function)])
    return ChatDelta(tool_calls=[ToolCallDelta(found.index, function=FunctionCallDelta(arguments=found.text))])


def _message(manner: Manner, text: str) -> tuple[ChatMessage, bool]:
    if not manner.calls:
        return ChatMessage(text), False
    reader = AnswerReader()
    found = reader.read(text)
    content = "".join(each for each in found if isinstance(each, str))
    if not reader.calls:
        return ChatMessage(content), False
    calls = [each for each in found if isinstance(each, CallBegun)]
    arguments = ["".join(e.text for e in found if isinstance(e, CallArguments) and e.index == c.index) for c in calls]
    tool_calls = [ToolCall(c.id, FunctionCall(c.name, text)) for c, text in zip(calls, arguments, strict=True)]
    return ChatMessage(content or None, tool_calls=tool_calls), _called(reader)


def _called(reader: AnswerReader) -> bool:
    return reader.calls > 0 and not reader.in_a_call


async def _logprobs(manner: Manner, texts: TokenTexts, piece: Piece) -> ChoiceLogprobs | None:
    if not manner.logprobs or piece.delta is None or not piece.delta.logprobs:
        return None
    await texts.learn(piece.delta.logprobs)
    return texts.of_chat(piece.delta.logprobs)
