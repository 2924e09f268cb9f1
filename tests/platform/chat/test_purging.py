"""Engines forget deleted conversations: in the deletion's transaction it is ordered, and it is done for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Socket
from django.db import transaction
from django.utils import timezone
from engine_at_hand import echo, long_question, new_address, serving

from pagoda.chat import conversations, tasks
from pagoda.chat.identity import Identity
from pagoda.chat.models import Conversation
from pagoda.engines import connections
from pagoda.generations import purging
from pagoda.generations.models import Generation, PendingPurge
from pagoda.generations.tasks import send_purges
from pagoda.tenants.keys import create_key
from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import tenant_scope
from pagoda_inference.client import EngineClient
from pagoda_inference.protocol import Purge, Purged

DAY = timedelta(days=1)


def conversation(party: Any, **fields: Any) -> Conversation:
    if "api_key" not in fields:
        fields["owner"] = party.member
    row = Conversation.across_tenants.create(tenant=party.tenant, **fields)
    Generation.across_tenants.create(
        tenant=party.tenant, lineage=str(row.pk), engine="unix:/x", finished=timezone.now(), text="secret"
    )
    return row


def ordered() -> set[tuple[str, str]]:
    """(account, lineage) of every order."""
    return set(PendingPurge.objects.values_list("account", "lineage"))


def expected(*rows: Conversation) -> set[tuple[str, str]]:
    return {(str(row.tenant_id), str(row.pk)) for row in rows}


@pytest.fixture
def two(acme: Any, rival: Any) -> tuple[Conversation, Conversation]:
    """A conversation of each tenant."""
    return conversation(acme), conversation(rival)


@pytest.mark.django_db
def test_deleting_orders_it_of_every_engine_and_of_those_it_ran_on(acme: Any, two: Any, settings: Any) -> None:
    settings.PAGODA_ENGINES = ["unix:/a", "unix:/b"]
    identity = Identity(acme.tenant, (acme.tenant,), "member", user=acme.member)
    with tenant_scope(acme.tenant.pk):
        conversations.delete(identity, two[0].pk)
    assert ordered() == expected(two[0])
    assert set(PendingPurge.objects.values_list("engine", flat=True)) == {"unix:/a", "unix:/b", "unix:/x"}


@pytest.mark.django_db
def test_what_is_rolled_back_is_not_ordered(acme: Any, two: Any) -> None:
    with transaction.atomic():
        acme.member.delete()
        assert ordered() == expected(two[0])
        transaction.set_rollback(True)
    assert ordered() == set()


@pytest.mark.django_db
def test_retention_orders_what_it_erases(acme: Any, two: Any) -> None:
    acme.tenant.retention_days = 30
    acme.tenant.save()
    old = conversation(acme, updated=timezone.now() - 31 * DAY)
    tasks.apply_retention()
    assert ordered() == expected(old)


@pytest.mark.django_db
def test_with_its_owner_a_conversation_goes_everywhere(acme: Any, two: Any) -> None:
    acme.member.delete()
    assert ordered() == expected(two[0])
    assert set(Generation.across_tenants.values_list("lineage", flat=True)) == {str(two[1].pk)}


@pytest.mark.django_db
def test_with_its_key_as_well(acme: Any, two: Any) -> None:
    key, _ = create_key(acme.tenant.pk, "app", created_by=acme.admin)
    row = conversation(acme, api_key=key)
    key.delete()
    assert ordered() == expected(row)


@pytest.mark.django_db
@pytest.mark.parametrize("whole_list", [False, True])
def test_a_tenants_blocks_go_with_its_account(acme: Any, two: Any, whole_list: bool) -> None:
    kept = expected(two[1])
    two[1].delete()
    if whole_list:
        Tenant.objects.filter(pk=acme.tenant.pk).delete()
    else:
        acme.tenant.delete()
    assert ordered() == kept


@pytest.mark.django_db(transaction=True)
def test_an_order_outlives_its_tenant_and_waits_for_its_engine(acme: Any, two: Any) -> None:
    acme.member.delete()
    acme.tenant.delete()
    assert send_purges() == 0
    assert ordered() == expected(two[0])


@pytest.mark.django_db
def test_orders_for_engines_that_are_no_more_are_given_up_after_a_month(acme: Any, settings: Any) -> None:
    settings.PAGODA_ENGINES = ["unix:/a"]
    for engine, age in (("unix:/a", 40 * DAY), ("unix:/gone", 40 * DAY), ("unix:/away", 20 * DAY)):
        PendingPurge.objects.create(account="a", lineage="l", engine=engine, created=timezone.now() - age)
    send_purges()
    assert set(PendingPurge.objects.values_list("engine", flat=True)) == {"unix:/a", "unix:/away"}


def test_orders_go_out_together_by_account() -> None:
    orders = [PendingPurge(pk=pk, account=account, lineage=lineage) for pk, account, lineage in
              [(1, "acme", "x"), (2, "rival", "y"), (3, "acme", "z"), (4, "acme", "x")]]  # fmt: skip
    assert list(purging.messages(orders)) == [(Purge("acme", ("x", "z")), [1, 3, 4]), (Purge("rival", ("y",)), [2])]


# --- with an engine ---------------------------------------------------------------------------------------------------


@pytest.fixture
def purged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """What engines confirmed to this process."""
    seen: list[tuple[str, str]] = []
    purge = EngineClient.purge

    async def watched(self: EngineClient, message: Purge) -> Purged:
        answer = await purge(self, message)
        seen.extend((message.account, lineage) for lineage in message.lineages)
        return answer

    monkeypatch.setattr(EngineClient, "purge", watched)
    yield seen
    purging._retry_at.clear()


async def until(condition: Callable[[], bool], within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while not await database_sync_to_async(condition)():  # noqa: ASYNC110  (another task changes the database)
            await asyncio.sleep(0.02)


def nothing_pending() -> bool:
    return not PendingPurge.objects.exists()


async def delete(socket: Socket, conversation_id: str) -> None:
    await socket.request("conversation.delete", "conversation.deleted", conversation_id=conversation_id)


async def test_a_deleted_conversations_blocks_are_gone_within_seconds(
    socket: Socket, rival_socket: Socket, purged: list[tuple[str, str]], acme: Any, web: str
) -> None:
    question = "Explain paged attention to a lawyer, with three examples from daily life, please."
    mine, theirs = await socket.ask(question), await rival_socket.ask(question)
    for each, created in ((socket, mine), (rival_socket, theirs)):
        await each.read_answer(created["generation_id"])
    await delete(socket, mine["conversation"]["id"])
    await until(lambda: nothing_pending())
    assert purged == [(str(acme.tenant.pk), mine["conversation"]["id"])]
    cached = []
    for each in (socket, rival_socket):
        created = await each.ask(question)
        answer = await each.read_answer(created["generation_id"])
        assert answer.finished is not None
        cached.append(answer.finished["usage"]["cached_tokens"])
    assert cached == [0, (echo(question)[0] - 1) // 16 * 16]


class TestWhileAnAnswerIsWritten:
    @pytest.fixture
    def step_ms(self) -> float:
        return 100

    async def test_what_it_adds_after_the_deletion_is_purged_too(
        self, socket: Socket, rival: Any, purged: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        orders: list[str] = []
        order = purging.order
        monkeypatch.setattr(
            purging, "order", lambda account, lineages: (order(account, lineages), orders.extend(lineages))
        )
        created = await socket.ask(long_question())
        await socket.read_until(created["generation_id"], 3)
        await delete(socket, created["conversation"]["id"])
        lineage = created["conversation"]["id"]

        def settled() -> bool:
            return not Generation.across_tenants.filter(lineage=lineage, finished__isnull=True).exists()

        await until(settled)
        await until(nothing_pending)
        assert orders == [lineage, lineage]
        assert purged[-1][1] == lineage

    async def test_an_answer_that_outlives_its_conversation_leaves_no_text(
        self, socket: Socket, acme: Any, rival: Any, hurry: Callable[[], None]
    ) -> None:
        created = await socket.ask(long_question())
        await socket.read_until(created["generation_id"], 3)
        lineage = created["conversation"]["id"]
        await database_sync_to_async(lambda: Conversation.across_tenants.filter(pk=lineage).delete())()
        hurry()

        def settled() -> bool:
            return Generation.across_tenants.filter(lineage=lineage, finished__isnull=False).exists()

        await until(settled)
        generation = await database_sync_to_async(Generation.across_tenants.get)(lineage=lineage)
        assert (generation.text, generation.token_ids) == ("", [])
        assert generation.output_tokens > 0


async def test_an_engine_that_was_away_is_told_when_it_is_back(
    web: str, socket: Socket, purged: list[tuple[str, str]], acme: Any, rival: Any, home: Path, settings: Any
) -> None:
    other = new_address()
    settings.PAGODA_ENGINES = [web, other]
    created = await socket.ask("Hello")
    await socket.read_answer(created["generation_id"])
    await delete(socket, created["conversation"]["id"])
    await until(lambda: list(PendingPurge.objects.values_list("engine", flat=True)) == [other])
    async with serving(other, home):
        await (await connections.get_client(other)).connect()
        assert await database_sync_to_async(send_purges)() == 1
    assert await database_sync_to_async(nothing_pending)()
