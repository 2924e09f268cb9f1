"""Whose cached prompts a prompt may share, seen through the websocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.db import database_sync_to_async
from chat_sockets import Answer, Json, Socket, client_id
from engine_at_hand import echo, long_question

from pagoda.chat.models import Message
from pagoda_inference.model.echo import EchoTokenizer

OpenSocket = Callable[..., Awaitable[Socket]]


async def test_the_same_prompt_is_cached_for_its_tenant_and_not_for_a_rival(
    socket: Socket, open_socket: OpenSocket, rival_socket: Socket, acme: Any
) -> None:
    question = "Explain paged attention to a lawyer, with three examples from daily life, please."
    admin = await open_socket(acme.admin)
    cached = []
    for each in (socket, rival_socket, socket, admin, rival_socket):
        created = await each.ask(question)
        answer = await each.read_answer(created["generation_id"])
        assert answer.finished is not None
        usage = answer.finished["usage"]
        assert answer.events[0]["cached_tokens"] == usage["cached_tokens"]
        cached.append(usage["cached_tokens"])
    hit = (echo(question)[0] - 1) // 16 * 16
    assert hit > 0
    assert cached == [0, 0, hit, hit, hit]


async def test_a_tenant_may_keep_each_members_cache_apart(socket: Socket, open_socket: OpenSocket, acme: Any) -> None:
    await database_sync_to_async(type(acme.tenant).objects.filter(pk=acme.tenant.pk).update)(cache_scope="user")
    question = "Explain paged attention to a lawyer, with three examples from daily life, please."
    sockets = [await open_socket(acme.member), await open_socket(acme.admin), await open_socket(acme.member)]
    cached = []
    for each in sockets:
        created = await each.ask(question)
        answer = await each.read_answer(created["generation_id"])
        assert answer.finished is not None
        cached.append(answer.finished["usage"]["cached_tokens"])
    assert cached == [0, 0, (echo(question)[0] - 1) // 16 * 16]


def usage(answer: Answer) -> Json:
    assert answer.finished is not None
    found: Json = answer.finished["usage"]
    return found


def whole_blocks(usage: Json) -> int:
    """Tokens in full blocks of what a turn computed; the last token of its answer never went through the model."""
    computed: int = usage["prompt_tokens"] + usage["output_tokens"] - 1
    return computed // 16 * 16


def cut_inside_a_character(text: str, past: int = 30) -> int:
    """Bytes of ``text`` up to the first byte of a character that has more."""
    at = next(index for index, character in enumerate(text) if index > past and ord(character) > 0x7F)
    return len(text[:at].encode()) + 1


async def stored_message(message_id: str) -> Message:
    return await database_sync_to_async(Message.across_tenants.get)(pk=message_id)


async def follow_up(socket: Socket, created: Json, question: str = "And then?") -> Json:
    """Usage of the next turn."""
    following = await socket.ask(
        question, conversation_id=created["conversation"]["id"], parent_id=created["assistant_message"]["id"]
    )
    return usage(await socket.read_answer(following["generation_id"]))


async def test_the_next_turn_finds_everything_that_was_computed(socket: Socket, rival_socket: Socket) -> None:
    question = long_question()
    # Cut inside a character, the answer's text (U+FFFD, three bytes) encodes to other tokens than it was made of.
    sampling = {"temperature": 0, "max_tokens": cut_inside_a_character(echo(question)[1])}
    second = []
    for each in (socket, rival_socket):
        created = await each.ask(question, sampling=sampling)
        first = await each.read_answer(created["generation_id"])
        assert first.text.endswith("\ufffd")
        assert usage(first)["cached_tokens"] == 0
        second.append((await follow_up(each, created))["cached_tokens"])
        assert second[-1] == whole_blocks(usage(first))
    assert second[0] == second[1] > echo(question)[0]


async def test_a_conversation_stays_warm_across_a_continue(socket: Socket, rival_socket: Socket) -> None:
    question = long_question()
    text = echo(question)[1]
    created = await socket.ask(question, sampling={"temperature": 0, "max_tokens": cut_inside_a_character(text)})
    first = usage(await socket.read_answer(created["generation_id"]))
    continued = await socket.request(
        "message.continue",
        "message.created",
        client_id=client_id(),
        message_id=created["assistant_message"]["id"],
        sampling={"temperature": 0},
    )
    rest = usage(await socket.read_answer(continued["generation_id"]))
    # The half of a character is written anew: the Continue's prompt is one token shorter than what was computed.
    assert rest["prompt_tokens"] == first["prompt_tokens"] + first["output_tokens"] - 1
    assert rest["cached_tokens"] == (rest["prompt_tokens"] - 1) // 16 * 16
    stored = await stored_message(created["assistant_message"]["id"])
    assert stored.content == text == EchoTokenizer().decode(stored.token_ids)
    assert len(stored.token_ids) == first["output_tokens"] - 1 + rest["output_tokens"]
    assert (await follow_up(socket, created))["cached_tokens"] == whole_blocks(rest)
    rivals = await rival_socket.ask(question)
    assert usage(await rival_socket.read_answer(rivals["generation_id"]))["cached_tokens"] == 0


async def test_nobody_is_shown_tokens(socket: Socket) -> None:
    created = await socket.ask("Hello")
    await socket.read_answer(created["generation_id"])
    opened = await socket.request(
        "conversation.open", "conversation.opened", conversation_id=created["conversation"]["id"]
    )
    assert (await stored_message(created["assistant_message"]["id"])).token_ids
    assert "token_ids" not in str(opened)


async def test_a_client_cannot_send_tokens(socket: Socket) -> None:
    created = await socket.ask("Hello", token_ids=[1, 2, 3])
    await socket.read_answer(created["generation_id"])
    assert (await stored_message(created["user_message"]["id"])).token_ids == []
