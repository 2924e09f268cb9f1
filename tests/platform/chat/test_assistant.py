"""What a tenant's conversations begin with, and that one keeps what it began with."""

from __future__ import annotations

from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Answer, Json, Socket, client_id
from engine_at_hand import long_question

from pagoda.assistants.models import Assistant, PublishedPrefix
from pagoda.chat.models import Conversation
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.protocol import ChatMessage

FIRST = "You are the librarian of a small town. Answer briefly."
SECOND = "You are the keeper of a tall tower, and you speak of nothing else than of what you see from it."
QUESTION = "What shall I read?"


@database_sync_to_async
def give(party: Any, text: str) -> None:
    Assistant.across_tenants.update_or_create(tenant=party.tenant, defaults={"text": text})


@database_sync_to_async
def stored(conversation_id: str) -> str:
    return Conversation.across_tenants.get(pk=conversation_id).system_text


def prompt_tokens(system: str, *turns: ChatMessage) -> int:
    opening = [ChatMessage("system", system)] if system else []
    return len(EchoTokenizer().encode_chat([*opening, *turns]))


def question(text: str) -> ChatMessage:
    return ChatMessage("user", text)


async def asked(socket: Socket, text: str, **fields: Any) -> tuple[Json, Answer]:
    created = await socket.ask(text, **fields)
    return created, await socket.read_answer(created["generation_id"])


def used(answer: Answer) -> int:
    assert answer.finished is not None
    count: int = answer.finished["usage"]["prompt_tokens"]
    return count


async def test_a_conversation_begins_with_its_tenants_assistant(
    socket: Socket, rival_socket: Socket, acme: Any
) -> None:
    await give(acme, FIRST)
    created, answer = await asked(socket, QUESTION)
    assert used(answer) == prompt_tokens(FIRST, question(QUESTION))
    assert await stored(created["conversation"]["id"]) == FIRST
    created, answer = await asked(rival_socket, QUESTION)
    assert used(answer) == prompt_tokens("", question(QUESTION))
    assert await stored(created["conversation"]["id"]) == ""


async def test_a_conversation_keeps_what_it_began_with(socket: Socket, acme: Any, rival: Any) -> None:
    await give(acme, FIRST)
    created, first = await asked(socket, QUESTION)
    conversation, answer_id = created["conversation"]["id"], created["assistant_message"]["id"]
    await give(acme, SECOND)
    _, second = await asked(socket, "And then?", conversation_id=conversation, parent_id=answer_id)
    turns = (question(QUESTION), ChatMessage("assistant", first.text), question("And then?"))
    assert used(second) == prompt_tokens(FIRST, *turns)
    assert second.finished is not None
    assert second.finished["usage"]["cached_tokens"] >= used(first) // 16 * 16
    again = await socket.request("message.regenerate", "message.created", client_id=client_id(), message_id=answer_id)
    assert used(await socket.read_answer(again["generation_id"])) == prompt_tokens(FIRST, question(QUESTION))
    _, fresh = await asked(socket, QUESTION)
    assert used(fresh) == prompt_tokens(SECOND, question(QUESTION))


async def test_one_that_began_without_an_assistant_stays_without(socket: Socket, acme: Any, rival: Any) -> None:
    created, first = await asked(socket, QUESTION)
    await give(acme, FIRST)
    parent = created["assistant_message"]["id"]
    _, second = await asked(socket, "And?", conversation_id=created["conversation"]["id"], parent_id=parent)
    turns = (question(QUESTION), ChatMessage("assistant", first.text), question("And?"))
    assert used(second) == prompt_tokens("", *turns)


async def test_a_continued_answer_has_the_assistant_before_it(socket: Socket, acme: Any, rival: Any) -> None:
    await give(acme, FIRST)
    created, first = await asked(socket, long_question(), sampling={"temperature": 0, "max_tokens": 8})
    continued = await socket.request(
        "message.continue", "message.created", client_id=client_id(), message_id=created["assistant_message"]["id"]
    )
    rest = await socket.read_answer(continued["generation_id"])
    assert used(rest) > used(first)


@pytest.mark.parametrize("kind", ["conversation.open", "conversation.list"])
async def test_members_are_not_shown_it(socket: Socket, acme: Any, rival: Any, kind: str) -> None:
    await give(acme, FIRST)
    created, _ = await asked(socket, QUESTION)
    if kind == "conversation.open":
        shown = await socket.request(kind, "conversation.opened", conversation_id=created["conversation"]["id"])
    else:
        shown = await socket.request(kind, "conversation.page")
    assert "librarian" not in str(shown)
    assert "librarian" not in str(created)


async def test_tenants_share_what_is_published_and_nothing_behind_it(
    socket: Socket, rival_socket: Socket, acme: Any, rival: Any
) -> None:
    published = "You are the librarian of a small town. Answer in two sentences, and name a book in each of them."

    @database_sync_to_async
    def choose() -> int:
        prefix = PublishedPrefix.objects.create(name="Librarian", text=published)
        for party, own in ((acme, "Speak like a pirate, please."), (rival, "Speak like a pirate, please.")):
            Assistant.across_tenants.create(tenant=party.tenant, prefix=prefix, text=own)
        return prefix.publications.get().blocks

    blocks = await choose()
    assert blocks >= 5
    cached = []
    for each in (socket, rival_socket, rival_socket):
        _, answer = await asked(each, QUESTION)
        assert answer.finished is not None
        cached.append(answer.finished["usage"]["cached_tokens"])
    whole = prompt_tokens(f"{published}\n\nSpeak like a pirate, please.", question(QUESTION))
    # The rival finds what is published, and its own prompt only the second time: acme's was the same.
    shared = len(published.encode()) + 1
    assert cached[0] == cached[1] == shared // 16 * 16
    assert cached[2] == (whole - 1) // 16 * 16 > cached[1]
