"""What the model gets to read: the path from the conversation's start to a message, cut to the model's context."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence

from pagoda.chat.models import Message
from pagoda_inference.protocol import ChatMessage

Count = Callable[[tuple[ChatMessage, ...]], Awaitable[int]]
"""Tokens of templated messages, as the engine counts them."""

Decode = Callable[[tuple[int, ...]], Awaitable[str]]
"""The text of tokens, as the engine decodes them."""

LONGEST_CHARACTER = 4
"""Bytes of a UTF-8 character, hence tokens that one character can be spread over."""

TEMPLATE_BYTES = 32
"""More than any chat template adds to a turn, in tokens."""

PREAMBLE_BYTES = 64
"""More than any chat template puts before the first turn (a default system prompt), in tokens."""

TURNS_DROPPED_TOGETHER = 4
"""Questions are dropped in groups: the prompt's start then stays the same for several turns, and stays cached."""


def opening(system_text: str) -> list[ChatMessage]:
    """What stands before the first question."""
    return [ChatMessage("system", system_text)] if system_text else []


def path_to(message: Message | None) -> list[ChatMessage]:
    """The turns from the start to ``message``. Answers that stayed empty are left out. Uses the database once."""
    if message is None:
        return []
    rows = Message.objects.filter(conversation_id=message.conversation_id)
    tree = {row[0]: row for row in rows.values_list("pk", "parent_id", "role", "content", "token_ids")}
    turns: list[ChatMessage] = []
    step: uuid.UUID | None = message.pk
    while step is not None:
        _, step, role, content, token_ids = tree[step]
        if content:
            answer = role == Message.Role.ASSISTANT
            turns.append(
                ChatMessage("assistant", content, tuple(token_ids)) if answer else ChatMessage("user", content)
            )
    turns.reverse()
    return turns


async def tokens_of(content: str, token_ids: Sequence[int], decode: Decode) -> tuple[int, ...]:
    """As many of ``token_ids`` as say exactly ``content``; none when that takes more than the last character's away.

    An answer that was cut may end with a part of a character, which a Continue writes anew.
    """
    for length in range(len(token_ids), max(0, len(token_ids) - LONGEST_CHARACTER), -1):
        kept = tuple(token_ids[:length])
        if await decode(kept) == content:
            return kept
    return ()


def room_for_prompt(context_length: int, max_tokens: int | None) -> int:
    """Tokens that the prompt may have, so that a sensible answer still fits behind it."""
    answer = context_length // 4 if max_tokens is None else max_tokens
    return context_length - min(answer, context_length // 2)


def most_tokens(turns: Sequence[ChatMessage]) -> int:
    """What the turns can come to as a prompt: a token is at least one byte of text."""
    return sum(len(turn.content.encode()) + TEMPLATE_BYTES for turn in turns) + PREAMBLE_BYTES


async def fit(turns: Sequence[ChatMessage], room: int, count: Count) -> tuple[ChatMessage, ...]:
    """``turns`` without as many of the oldest as it takes to come to ``room`` tokens; leading system turns are kept.

    The last question is always kept: when even that is too long, the engine refuses it with the numbers. What is short
    in bytes need not be counted.
    """
    everything = tuple(turns)
    if most_tokens(turns) <= room:
        return everything
    if await count(everything) <= room:
        return everything
    first = next((index for index, turn in enumerate(turns) if turn.role != "system"), len(turns))
    system, rest = everything[:first], everything[first:]
    questions = [index for index, turn in enumerate(rest) if turn.role == "user"] or [0]
    starts = questions[TURNS_DROPPED_TOGETHER::TURNS_DROPPED_TOGETHER]
    start = await _first_that_fits(system, rest, starts, room, count)
    if start is None:
        start = await _first_that_fits(system, rest, questions, room, count)
    return system + rest[questions[-1] if start is None else start :]


async def _first_that_fits(
    system: tuple[ChatMessage, ...], rest: tuple[ChatMessage, ...], starts: Sequence[int], room: int, count: Count
) -> int | None:
    """The earliest start whose messages fit, by bisection; None when none does."""
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        if await count(system + rest[starts[middle] :]) <= room:
            high = middle
        else:
            low = middle + 1
    return starts[low] if low < len(starts) else None
