"""What of a long conversation the model still reads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pagoda.chat import context
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.protocol import ChatMessage


class Counter:
    """Counts as the echo model does, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, messages: Sequence[ChatMessage]) -> int:
        self.asked += 1
        return len(EchoTokenizer().encode_chat(messages))


def conversation(turns: int, length: int = 100) -> list[ChatMessage]:
    """Questions and answers of ``length`` bytes, ending with a question."""
    roles = ("user", "assistant")
    return [ChatMessage(roles[number % 2], f"{number:03}" + "x" * (length - 3)) for number in range(2 * turns - 1)]  # type: ignore[arg-type]


async def test_what_surely_fits_is_not_counted() -> None:
    count = Counter()
    turns = conversation(3)
    assert await context.fit(turns, 4096, count) == tuple(turns)
    assert count.asked == 0


async def test_what_fits_is_kept_whole() -> None:
    count = Counter()
    turns = conversation(10)
    exact = await count(turns)
    assert await context.fit(turns, exact, count) == tuple(turns)


@pytest.mark.parametrize("room", [150, 400, 1000, 1500, 1900])
async def test_the_oldest_turns_go_first_and_the_rest_begins_with_a_question(room: int) -> None:
    count = Counter()
    turns = conversation(10)
    kept = await context.fit(turns, room, count)
    assert kept == tuple(turns[-len(kept) :])
    assert kept[0].role == "user"
    assert kept[-1] == turns[-1]
    assert await count(kept) <= room


async def test_system_turns_stay() -> None:
    system = ChatMessage("system", "Answer briefly.")
    kept = await context.fit([system, *conversation(20)], 1000, Counter())
    assert kept[0] == system
    assert kept[1].role == "user"
    assert len(kept) < 20


async def test_the_prompts_start_stays_the_same_for_several_turns() -> None:
    starts = [(await context.fit(conversation(turns), 2000, Counter()))[0] for turns in range(12, 36)]
    assert len(set(map(str, starts))) <= len(starts) / context.TURNS_DROPPED_TOGETHER + 1


async def test_a_last_question_that_is_too_long_is_left_to_the_engine_to_refuse() -> None:
    turns = [*conversation(3)[:-1], ChatMessage("user", "y" * 5000)]
    assert await context.fit(turns, 1000, Counter()) == (turns[-1],)


async def test_an_answer_to_be_continued_keeps_its_question() -> None:
    turns = [*conversation(30), ChatMessage("assistant", "partial")]
    kept = await context.fit(turns, 500, Counter())
    assert kept[-2:] == tuple(turns[-2:])
    assert kept[0].role == "user"


def test_room_is_left_for_the_answer() -> None:
    assert context.room_for_prompt(8192, 1024) == 7168
    assert context.room_for_prompt(8192, None) == 6144
    assert context.room_for_prompt(8192, 8192) == 4096
