"""A key that ends, or may chat no more, ends the answers that it has under way: what was written is billed, no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Socket
from django.utils import timezone
from engine_at_hand import long_question

from pagoda.chat import tasks
from pagoda.chat.models import Conversation, Message
from pagoda.generations import recorder
from pagoda.generations.models import Generation
from pagoda.tenants.keys import change_key, revoke_key
from pagoda.tenants.models import ApiKey, Tenant
from pagoda.usage.models import Meter, OpenHold, UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)

MakeKey = Callable[..., Awaitable[tuple[Any, str]]]


@pytest.fixture
def step_ms() -> float:
    """Long answers take half a minute, and titles three seconds, unless their key ends."""
    return 200


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorder.SNAPSHOT_S < 4, "within 5 seconds, a step of the engine included"
    monkeypatch.setattr(recorder, "SNAPSHOT_S", 0.1)


@database_sync_to_async
def end_key(key: ApiKey, ending: str, who: Any) -> None:
    if ending == "revoked":
        revoke_key(key, who=who)
    elif ending == "narrowed":
        change_key(key, who=who, label=key.label, scopes=["batch"])
    elif ending == "expired":
        ApiKey.across_tenants.filter(pk=key.pk).update(expires=timezone.now())
    elif ending == "suspended":
        Tenant.objects.filter(pk=key.tenant_id).update(is_active=False)  # no signal: no engine hears of it


async def begun(socket: Socket) -> str:
    """An answer of many seconds that has begun."""
    created = await socket.ask(long_question())
    generation_id: str = created["generation_id"]
    while not (await socket.next_event(generation_id))["type"].endswith("delta"):
        pass
    return generation_id


async def row(generation_id: str) -> Generation:
    return await Generation.across_tenants.aget(pk=generation_id)


@pytest.mark.parametrize("ending", ["revoked", "narrowed", "expired", "suspended"])
async def test_what_a_key_has_under_way_ends_with_it(
    web: str, make_key: MakeKey, acme: Any, rival_socket: Socket, titles_asked: list[Any], ending: str
) -> None:
    key, text = await make_key(acme, monthly_tokens=1_000_000)
    _, other_text = await make_key(acme)
    ended, other = Socket(origin=None), Socket(origin=None)
    await ended.hello(api_key=text)
    await other.hello(api_key=other_text)
    answers = [await begun(socket) for socket in (ended, other, rival_socket)]
    await end_key(key, ending, acme.admin)
    async with asyncio.timeout(60):
        while (await row(answers[0])).finished is None:  # noqa: ASYNC110  (nobody waits for this in the product)
            await asyncio.sleep(0.05)
    settled = await row(answers[0])
    assert settled.state == "cancelled"
    assert 0 < settled.output_tokens < settled.request["sampling"]["max_tokens"]
    record = await UsageRecord.across_tenants.aget(generation_id=settled.pk)
    assert record.output_tokens == settled.output_tokens == len(settled.token_ids)
    assert not await OpenHold.across_tenants.filter(generation_id=settled.pk).aexists()
    meter = await Meter.across_tenants.aget(subject=key.pk)
    assert (meter.used, meter.held) == (record.prompt_tokens + record.output_tokens, 0)
    assert titles_asked == []
    assert not await Generation.across_tenants.filter(purpose="title").aexists()
    going_on = [await row(each) for each in answers[1:]]
    states = [(each.finished is None, each.cancel_requested) for each in going_on]
    assert states[1] == (True, False)
    if ending != "suspended":
        assert states[0] == (True, False)
    for socket in (ended, other):
        await socket.close()


async def test_an_answer_of_a_process_that_died_ends_as_well(web: str, make_key: MakeKey, acme: Any) -> None:
    key, text = await make_key(acme)
    socket = Socket(origin=None)
    await socket.hello(api_key=text)
    generation_id = await begun(socket)
    await socket.close()
    await recorder.current().close()
    await end_key(key, "revoked", acme.admin)
    await recorder.start_up()
    async with asyncio.timeout(60):
        while (await row(generation_id)).finished is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await row(generation_id)).state == "cancelled"


@pytest.mark.parametrize("ending", ["revoked", "narrowed", "expired", "suspended"])
def test_a_conversation_of_an_ended_key_asks_for_no_title(acme: Any, rival: Any, ending: str) -> None:
    from pagoda.tenants.keys import create_key

    made = {}
    for party in (acme, rival):
        key, _ = create_key(party.tenant.pk, "app", created_by=party.admin)
        conversation = Conversation.across_tenants.create(
            tenant=party.tenant, api_key=key, updated=timezone.now() - timedelta(minutes=10)
        )
        for role in ("user", "assistant"):
            Message.across_tenants.create(tenant=party.tenant, conversation=conversation, role=role, content="Trees")
        made[party.tenant.pk] = key, conversation
    key, conversation = made[acme.tenant.pk]
    end_key.func(key, ending, acme.admin)
    assert tasks.title_conversation(str(acme.tenant.pk), str(conversation.pk)) is False
    assert tasks.title_untitled() == 1
    asked = Generation.across_tenants.filter(purpose="title")
    assert [each.tenant_id for each in asked] == [rival.tenant.pk]


@pytest.mark.parametrize("step_ms", [1000.0])
async def test_a_title_under_way_ends_with_its_key(
    web: str, make_key: MakeKey, acme: Any, titles_asked: list[Any]
) -> None:
    key, _ = await make_key(acme)

    @database_sync_to_async
    def ask() -> None:
        conversation = Conversation.across_tenants.create(tenant=acme.tenant, api_key=key)
        fields = {"tenant": acme.tenant, "conversation": conversation, "role": "user", "content": long_question()}
        Message.across_tenants.create(**fields)
        assert tasks.title_conversation(str(acme.tenant.pk), str(conversation.pk)) is True

    await ask()
    await end_key(key, "revoked", acme.admin)
    title = Generation.across_tenants.filter(purpose="title")
    async with asyncio.timeout(60):
        while not await title.filter(finished__isnull=False).aexists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert (await title.aget()).state == "cancelled"
