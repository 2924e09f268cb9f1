"""The list of conversations, their names and their end; and what other tabs hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Socket
from engine_at_hand import long_question

from pagoda.chat.models import Conversation
from pagoda.generations.models import Generation

OpenSocket = Callable[..., Awaitable[Socket]]


async def make(party: Any, count: int) -> list[str]:
    """Conversations of a party's member, newest first."""

    def write() -> list[str]:
        rows = [
            Conversation.across_tenants.create(tenant=party.tenant, owner=party.member, title=f"Number {number}")
            for number in range(count)
        ]
        return [str(row.pk) for row in reversed(rows)]

    return await database_sync_to_async(write)()


async def test_the_list_comes_in_pages_newest_first(socket: Socket, acme: Any, rival: Any) -> None:
    expected = await make(acme, 7)
    await make(rival, 2)
    found: list[str] = []
    before, pages = None, 0
    while pages == 0 or before is not None:
        page = await socket.request("conversation.list", "conversation.page", limit=3, before=before)
        found += [each["id"] for each in page["conversations"]]
        before, pages = page["next"], pages + 1
    assert (found, pages) == (expected, 3)
    page = await socket.request("conversation.list", "conversation.page")
    assert page["next"] is None
    assert page["conversations"][0] == {
        "id": expected[0],
        "title": "Number 6",
        "created": page["conversations"][0]["created"],
        "updated": page["conversations"][0]["updated"],
    }
    assert page["conversations"][0]["created"].endswith("Z")


async def test_a_conversation_that_goes_on_becomes_the_first(socket: Socket, acme: Any) -> None:
    oldest = (await make(acme, 3))[-1]
    created = await socket.ask("Hello", conversation_id=oldest)
    await socket.read_answer(created["generation_id"])
    page = await socket.request("conversation.list", "conversation.page")
    assert page["conversations"][0]["id"] == oldest


async def test_a_new_name_is_answered_and_told_to_the_members_other_tabs(
    socket: Socket, open_socket: OpenSocket, rival_socket: Socket, acme: Any
) -> None:
    tab, colleague = await open_socket(acme.member), await open_socket(acme.admin)
    [conversation_id] = await make(acme, 1)
    changed = await socket.request(
        "conversation.rename", "conversation.changed", conversation_id=conversation_id, title="  Trees 🌱 "
    )
    assert changed["conversation"]["title"] == "Trees 🌱"
    hint = await tab.expect("conversation.changed")
    assert hint == {"type": "conversation.changed", "conversation": changed["conversation"]}
    for other in (socket, colleague, rival_socket):
        assert await other.is_silent()


async def test_a_deleted_conversation_is_gone_for_every_tab(socket: Socket, open_socket: OpenSocket, acme: Any) -> None:
    tab = await open_socket(acme.member)
    first, second = await make(acme, 2)
    await socket.request("conversation.delete", "conversation.deleted", conversation_id=first)
    assert (await tab.expect("conversation.deleted"))["conversation_id"] == first
    page = await tab.request("conversation.list", "conversation.page")
    assert [each["id"] for each in page["conversations"]] == [second]
    for kind in ("conversation.open", "conversation.delete"):
        assert (await tab.refusal(kind, conversation_id=first))["code"] == "not_found"


async def test_a_message_in_one_tab_is_told_to_the_others(socket: Socket, open_socket: OpenSocket, acme: Any) -> None:
    tab = await open_socket(acme.member)
    created = await socket.ask("Hello")
    hint = await tab.expect("conversation.changed")
    assert hint["conversation"]["id"] == created["conversation"]["id"]
    await socket.read_answer(created["generation_id"])
    later = await tab.expect("conversation.changed")
    assert later["conversation"]["updated"] >= hint["conversation"]["updated"]


class TestWhileAnAnswerIsWritten:
    @pytest.fixture
    def step_ms(self) -> float:
        return 150

    async def test_deleting_its_conversation_stops_it(self, socket: Socket) -> None:
        created = await socket.ask(long_question())
        await socket.read_until(created["generation_id"], 10)
        conversation_id = created["conversation"]["id"]
        await socket.request("conversation.delete", "conversation.deleted", conversation_id=conversation_id)

        def state() -> str:
            return Generation.across_tenants.values_list("state", flat=True).get(pk=created["generation_id"])

        async with asyncio.timeout(60):
            while await database_sync_to_async(state)() != "cancelled":  # noqa: ASYNC110  (nobody waits in the product)
                await asyncio.sleep(0.01)
