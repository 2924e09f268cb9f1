"""What belongs to one tenant, or to one member of it, does not exist for anybody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from chat_sockets import Socket, client_id
from engine_at_hand import echo, long_question

OpenSocket = Callable[..., Awaitable[Socket]]


@pytest.fixture
def step_ms() -> float:
    return 2


async def refused_everything(socket: Socket, created: dict[str, Any]) -> None:
    conversation_id, generation_id = created["conversation"]["id"], created["generation_id"]
    question, answer = created["user_message"]["id"], created["assistant_message"]["id"]
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("conversation.open", {"conversation_id": conversation_id}),
        ("conversation.rename", {"conversation_id": conversation_id, "title": "Mine"}),
        ("conversation.delete", {"conversation_id": conversation_id}),
        ("message.create", {"content": "Hi", "conversation_id": conversation_id}),
        ("message.create", {"content": "Hi", "conversation_id": conversation_id, "parent_id": answer}),
        ("message.regenerate", {"message_id": answer}),
        ("message.continue", {"message_id": answer}),
        ("message.continue", {"message_id": question}),
        ("generation.attach", {"generation_id": generation_id}),
        ("generation.stop", {"generation_id": generation_id}),
    ]
    for kind, fields in attempts:
        error = await socket.refusal(kind, client_id=client_id(), **fields)
        assert error["code"] == "not_found", kind
    await socket.send("generation.detach", generation_id=generation_id)
    page = await socket.request("conversation.list", "conversation.page")
    assert page["conversations"] == []
    assert [message for message in socket.unread if message["type"] != "pong"] == []


async def test_a_rival_tenant_finds_nothing(socket: Socket, rival_socket: Socket) -> None:
    question = long_question()
    created = await socket.ask(question)
    await refused_everything(rival_socket, created)
    answer = await socket.read_answer(created["generation_id"])
    assert (answer.state, answer.text) == ("complete", echo(question)[1])
    await refused_everything(rival_socket, created)


async def test_another_member_of_the_tenant_finds_nothing(socket: Socket, open_socket: OpenSocket, acme: Any) -> None:
    admin = await open_socket(acme.admin)
    created = await socket.ask(long_question())
    await refused_everything(admin, created)
    assert (await socket.read_answer(created["generation_id"])).state == "complete"


async def test_a_key_and_its_maker_do_not_share_conversations(
    open_socket: OpenSocket, make_key: Any, acme: Any
) -> None:
    _, text = await make_key(acme)
    app, maker = Socket(origin=None), await open_socket(acme.admin)
    await app.hello(api_key=text)
    created = await app.ask(long_question())
    await refused_everything(maker, created)
    assert (await app.read_answer(created["generation_id"])).state == "complete"
    assert len((await app.request("conversation.list", "conversation.page"))["conversations"]) == 1
    await app.close()
