"""Whose cached prompts a prompt may share, seen through the websocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.db import database_sync_to_async
from chat_sockets import Socket
from engine_at_hand import echo

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
