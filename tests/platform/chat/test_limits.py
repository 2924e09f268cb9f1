"""The limits of tenants and keys in the chat: what an answer holds, what it settles to, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Socket, client_id
from django.utils import timezone
from engine_at_hand import long_question

from pagoda.chat import access_watch
from pagoda.chat.identity import NOT_A_MEMBER, NOT_SIGNED_IN, Identity
from pagoda.generations.models import Generation
from pagoda.tenants.keys import change_key, revoke_key, rotate_key
from pagoda.tenants.models import ApiKey, Tenant
from pagoda.usage.models import Meter, OpenHold, TenantLimits, UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def step_ms() -> float:
    return 2


@database_sync_to_async
def limit(tenant: Tenant, **limits: int) -> None:
    TenantLimits.across_tenants.create(tenant=tenant, **limits)


@database_sync_to_async
def spent(tenant: Tenant) -> tuple[int, int, int]:
    """What the tenant's meter counts, what is in its ledger, and how many holds are open."""
    rows = UsageRecord.across_tenants.filter(tenant=tenant)
    meter = Meter.across_tenants.get(subject=tenant.pk)
    in_ledger = sum(row.prompt_tokens + row.output_tokens for row in rows)
    return meter.used + meter.held, in_ledger, OpenHold.across_tenants.filter(tenant=tenant).count()


async def test_a_budget_that_is_used_up_is_told(socket: Socket, rival_socket: Socket, acme: Any, rival: Any) -> None:
    await limit(acme.tenant, monthly_tokens=1500)
    await limit(rival.tenant, monthly_tokens=1_000_000)
    refusal = None
    for _ in range(200):
        same = client_id()
        await socket.send("message.create", client_id=same, content="Hello " * 20)
        told = await socket.receive()
        while told.get("client_id") != same:
            told = await socket.receive()
        if told["type"] == "error":
            refusal = told
            break
        await socket.read_answer(told["generation_id"])
    assert refusal is not None
    assert refusal["code"] == "budget_used"
    assert "budget of 1500 tokens" in refusal["message"]
    counted, in_ledger, open_holds = await spent(acme.tenant)
    assert counted == in_ledger <= 1500
    assert open_holds == 0
    assert await rival_socket.ask("Hello")


async def test_an_answer_is_no_longer_than_what_is_left_of_the_budget(socket: Socket, acme: Any) -> None:
    await limit(acme.tenant, monthly_tokens=200)
    created = await socket.ask("Hello")
    generation = await Generation.across_tenants.aget(pk=created["generation_id"])
    assert generation.request["sampling"]["max_tokens"] < 200
    await socket.read_answer(created["generation_id"])
    counted, in_ledger, _ = await spent(acme.tenant)
    assert counted == in_ledger


@pytest.mark.parametrize("step_ms", [150.0], ids=["slowly"])
async def test_a_tenants_answers_at_a_time_are_its_members_together(
    open_socket: Callable[..., Awaitable[Socket]], acme: Any, rival_socket: Socket, hurry: Callable[[], None]
) -> None:
    await limit(acme.tenant, concurrent_generations=1)
    first, second = await open_socket(acme.member), await open_socket(acme.admin)
    created = await first.ask(long_question())
    refusal = await second.refusal("message.create", client_id=client_id(), content="Hi")
    assert refusal["code"] == "rate_limited"
    assert await rival_socket.ask("Hello")
    hurry()
    await first.read_answer(created["generation_id"])
    assert await second.ask("Hi")


async def test_a_repeated_request_counts_once(socket: Socket, acme: Any) -> None:
    await limit(acme.tenant, requests_per_minute=1)
    same = client_id()
    for _ in range(2):
        await socket.send("message.create", client_id=same, content="Hello")
        assert (await socket.expect("message.created"))["client_id"] == same


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert access_watch.INTERVAL_S < 5
    monkeypatch.setattr(access_watch, "INTERVAL_S", 0.05)


async def test_one_socket_that_does_not_close_keeps_no_other_open(acme: Any, rival: Any, quick_watch: None) -> None:
    closed: dict[str, int] = {}

    def closing(name: str, failure: Exception | None = None) -> Callable[[int], Awaitable[None]]:
        async def close(code: int) -> None:
            closed[name] = code
            if failure is not None:
                raise failure
            if name == "stuck":
                await asyncio.Event().wait()

        return close

    gone = Identity(acme.tenant, (acme.tenant,), "member", user=rival.member)
    for name, failure in (("broken", OSError("gone")), ("stuck", None), ("last", None)):
        access_watch.watch(gone, closing(name, failure))
    await access_watch.start()
    later = closing("later")
    async with asyncio.timeout(60):
        while "last" not in closed:  # noqa: ASYNC110  (nobody waits for this in the product)
            await asyncio.sleep(0.01)
        access_watch.watch(gone, later)
        while "later" not in closed:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await access_watch.stop()
    assert set(closed.values()) == {NOT_A_MEMBER}


async def test_a_key_without_the_scope_does_not_chat(web: str, make_key: Any, acme: Any) -> None:
    _, text = await make_key(acme, scopes=["batch"])
    socket = Socket(origin=None)
    await socket.connect()
    await socket.send("hello", version=1, api_key=text)
    assert await socket.expect_close() == NOT_A_MEMBER


@pytest.mark.parametrize("ending", ["revoked", "replaced", "expired", "narrowed"])
async def test_a_key_that_ends_closes_its_sockets_and_no_others(
    quick_watch: None, web: str, make_key: Callable[..., Awaitable[Any]], acme: Any, rival: Any, ending: str
) -> None:
    key, text = await make_key(acme)
    others = [await make_key(acme), await make_key(rival)]
    ended, *open_ones = [Socket(origin=None) for _ in range(3)]
    await ended.hello(api_key=text)
    for socket, (_, other) in zip(open_ones, others, strict=True):
        await socket.hello(api_key=other)
    if ending == "revoked":
        await database_sync_to_async(revoke_key)(key, who=acme.admin)
    elif ending == "replaced":
        await database_sync_to_async(rotate_key)(key, who=acme.admin, overlap=timedelta(seconds=0.1))
    elif ending == "narrowed":
        await database_sync_to_async(change_key)(key, who=acme.admin, label=key.label, scopes=["batch"])
    else:
        soon = timezone.now() + timedelta(seconds=0.1)
        await database_sync_to_async(ApiKey.across_tenants.filter(pk=key.pk).update)(expires=soon)
    assert await ended.expect_close() == NOT_SIGNED_IN
    for socket in open_ones:
        assert await socket.request("ping", "pong")
        await socket.close()
