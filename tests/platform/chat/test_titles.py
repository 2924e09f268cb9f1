"""Titles: asked for once, after the first answer, and never worse than the question's first words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Socket
from django.utils import timezone

from pagoda.chat import tasks, titles
from pagoda.chat.models import Conversation
from pagoda.generations.models import Generation
from pagoda.usage.models import UsageRecord

OpenSocket = Callable[..., Awaitable[Socket]]
Asked = list[tuple[str, str]]

title_conversation = database_sync_to_async(tasks.title_conversation)


async def title_generations() -> list[Generation]:
    def read() -> list[Generation]:
        return list(Generation.across_tenants.filter(purpose="title"))

    return await database_sync_to_async(read)()


async def test_the_first_answer_asks_for_a_title_and_its_tabs_hear_of_it(
    socket: Socket, open_socket: OpenSocket, titles_asked: Asked, acme: Any
) -> None:
    tab = await open_socket(acme.member)
    created = await socket.ask("How do trees drink?")
    await socket.read_answer(created["generation_id"])
    assert titles_asked == [(str(acme.tenant.pk), created["conversation"]["id"])]
    assert await title_conversation(*titles_asked[0]) is True
    for each in (socket, tab):
        while not (hint := await each.expect("conversation.changed"))["conversation"]["title"]:
            pass
        assert hint["conversation"]["id"] == created["conversation"]["id"]
        assert 0 < len(hint["conversation"]["title"]) <= titles.LENGTH
    [generation] = await title_generations()
    assert generation.request["request_class"] == "batch"
    record = await database_sync_to_async(UsageRecord.across_tenants.get)(generation_id=generation.pk)
    assert (record.purpose, record.tenant_id, record.user_id) == ("title", acme.tenant.pk, acme.member.pk)
    assert record.model == "echo"


async def test_a_title_is_asked_for_once(socket: Socket, titles_asked: Asked) -> None:
    created = await socket.ask("How do trees drink?")
    await socket.read_answer(created["generation_id"])
    assert [await title_conversation(*titles_asked[0]) for _ in range(3)] == [True, False, False]
    assert len(await title_generations()) == 1


async def test_a_title_given_by_hand_is_kept(socket: Socket, titles_asked: Asked) -> None:
    created = await socket.ask("How do trees drink?")
    await socket.read_answer(created["generation_id"])
    conversation_id = created["conversation"]["id"]
    await socket.request("conversation.rename", "conversation.changed", conversation_id=conversation_id, title="Mine")
    assert await title_conversation(*titles_asked[0]) is False


async def test_a_lost_task_is_found_again(socket: Socket, rival_socket: Socket, titles_asked: Asked) -> None:
    for each in (socket, rival_socket):
        created = await each.ask("How do trees drink?")
        await each.read_answer(created["generation_id"])
    assert await database_sync_to_async(tasks.title_untitled)() == 0
    earlier = timezone.now() - timedelta(minutes=10)
    await database_sync_to_async(Conversation.across_tenants.update)(updated=earlier)
    assert await database_sync_to_async(tasks.title_untitled)() == 2
    assert await database_sync_to_async(tasks.title_untitled)() == 0


async def test_without_a_complete_answer_the_question_names_the_conversation(
    socket: Socket, rival_socket: Socket, titles_asked: Asked
) -> None:
    failed = await socket.ask("why " * 1250)
    assert (await socket.read_answer(failed["generation_id"])).state == "failed"
    title = (await socket.expect("conversation.changed"))["conversation"]["title"]
    assert title.startswith("why why")
    assert len(title) <= titles.LENGTH
    theirs = await rival_socket.ask("How do trees drink?")
    await rival_socket.read_answer(theirs["generation_id"])
    assert [each for _, each in titles_asked] == [theirs["conversation"]["id"]]


async def test_another_tenants_id_titles_nothing(socket: Socket, titles_asked: Asked, rival: Any) -> None:
    created = await socket.ask("How do trees drink?")
    await socket.read_answer(created["generation_id"])
    assert await title_conversation(str(rival.tenant.pk), created["conversation"]["id"]) is False


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Soft-boiled eggs", "Soft-boiled eggs"),
        ('"Soft-boiled eggs."\nAnd more', "Soft-boiled eggs"),
        ("Title: **Trees**", "Trees"),
        ("제목: 한국의 수도", "한국의 수도"),
        ("“The tree”", "The tree"),
        ("", "How do trees drink?"),
        (" \n\t ", "How do trees drink?"),
        ("***", "How do trees drink?"),
        ("The capital of France is Paris.", "How do trees drink?"),
        ("one two three four five six seven eight nine ten eleven", "How do trees drink?"),
        ("tab\there \x07bell", "tab here bell"),
    ],
)
def test_an_answer_becomes_a_title_or_gives_way_to_the_question(answer: str, title: str) -> None:
    assert titles.choose(answer, "How do trees drink?") == title


@pytest.mark.parametrize("text", ["word " * 40, "x" * 200, "한국어 " * 40, "🌱" * 100, "a" * 50 + " " + "b" * 50])
def test_a_title_has_sixty_characters_at_most(text: str) -> None:
    title = titles.from_question(text)
    assert 0 < len(title) <= 60
    assert title.endswith("…")


@pytest.mark.parametrize(
    "character",
    ["👩‍👩‍👧", "👍🏽", "🇰🇷", "e\u0301", "❤\ufe0f", "각"],
    ids=["family", "skin", "flag", "accent", "heart", "jamo"],
)
@pytest.mark.parametrize("offset", range(6))
def test_a_title_is_cut_between_characters_as_people_see_them(character: str, offset: int) -> None:
    title = titles.from_question("x" * offset + character * 70)
    assert title.endswith("…")
    kept = title.removesuffix("…")[offset:]
    assert kept
    assert kept == character * (len(kept) // len(character))


def test_half_a_character_at_the_end_of_an_answer_is_not_part_of_the_title() -> None:
    assert titles.choose("👩‍👩‍👧 family \ufffd", "Who?") == "👩‍👩‍👧 family"


def test_a_question_without_words_has_a_title_too() -> None:
    assert titles.from_question("***") == "***"
    assert titles.from_question("\u200b") != ""


def test_the_prompt_for_a_title_ends_with_the_beginning_of_the_question() -> None:
    prompt = titles.prompt("Why?\n" * 1000)
    assert prompt[0].role == "system"
    assert prompt[-1].role == "user"
    assert len(prompt[-1].content) == titles.EXCERPT
