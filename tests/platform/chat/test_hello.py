"""Opening a socket: who may, and what everybody else is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Socket, sign_in
from django.utils import timezone

from pagoda.chat import access_watch, consumer
from pagoda.tenants.models import ApiKey, Membership, User

OpenSocket = Callable[..., Awaitable[Socket]]


@pytest.fixture
async def stranger(web: str) -> AsyncIterator[Callable[..., Awaitable[Socket]]]:
    """Opens sockets that have not said hello."""
    sockets: list[Socket] = []

    async def open_one(user: User | None = None, **options: Any) -> Socket:
        session = await database_sync_to_async(sign_in)(user) if user else None
        socket = Socket(session.session_key if session else None, **options)
        sockets.append(socket)
        await socket.connect()
        return socket

    yield open_one
    for socket in sockets:
        await socket.close()


async def test_a_member_is_welcomed_with_tenant_and_model(open_socket: OpenSocket, acme: Any) -> None:
    socket = Socket((await database_sync_to_async(sign_in)(acme.member)).session_key)
    welcome = await socket.hello(request_id="one")
    await socket.close()
    tenant = {"id": str(acme.tenant.pk), "slug": "acme", "name": "Acme"}
    assert welcome == {
        "type": "welcome",
        "version": 1,
        "request_id": "one",
        "tenant": tenant,
        "tenants": [tenant],
        "member": {"id": str(acme.member.pk), "email": "member@acme.example", "name": "Mia", "role": "member"},
        "model": {"id": "echo", "context_length": 4096},
    }


async def test_a_member_of_two_tenants_chooses_one(
    stranger: Callable[..., Awaitable[Socket]], acme: Any, rival: Any
) -> None:
    await database_sync_to_async(Membership.across_tenants.create)(tenant=rival.tenant, user=acme.member)
    for wanted, expected in ((None, "acme"), ("rival", "rival"), ("acme", "acme")):
        socket = await stranger(acme.member)
        await socket.send("hello", version=1, tenant=wanted)
        welcome = await socket.expect("welcome")
        assert welcome["tenant"]["slug"] == expected
        assert [each["slug"] for each in welcome["tenants"]] == ["acme", "rival"]


async def test_an_api_key_works_without_cookie_and_origin_in_its_own_tenant(
    stranger: Callable[..., Awaitable[Socket]], make_key: Any, acme: Any
) -> None:
    key, text = await make_key(acme)
    socket = await stranger(origin=None)
    await socket.send("hello", version=1, api_key=text)
    welcome = await socket.expect("welcome")
    assert welcome["tenant"]["slug"] == "acme"
    assert welcome["member"] == {"id": str(key.pk), "email": "", "name": "app", "role": "member"}


@pytest.mark.parametrize(
    "frame",
    [
        "no json",
        "[1]",
        '{"type": "hello"}',
        '{"type": "hello", "version": 2}',
        '{"type": "hello", "version": "1"}',
        '{"type": "ping"}',
        '{"type": "hello", "version": 1, "tenant": 5}',
        '{"type": "hello", "version": 1, "tenant": "' + "x" * 300_000 + '"}',
    ],
    ids=lambda frame: frame[:40],
)
async def test_anything_but_a_valid_hello_closes_the_socket(
    stranger: Callable[..., Awaitable[Socket]], acme: Any, frame: str
) -> None:
    socket = await stranger(acme.member)
    await socket.send_text(frame)
    assert await socket.expect_close() == 4400


async def test_no_hello_in_time_closes_the_socket(
    stranger: Callable[..., Awaitable[Socket]], acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "HELLO_WITHIN_S", 0.05)
    socket = await stranger(acme.member)
    assert await socket.expect_close() == 4408


async def test_nobody_gets_in_without_signing_in(
    stranger: Callable[..., Awaitable[Socket]], make_key: Any, acme: Any
) -> None:
    key, text = await make_key(acme)
    await database_sync_to_async(ApiKey.across_tenants.filter(pk=key.pk).update)(revoked=timezone.now())
    _, expired_text = await make_key(acme, expires=timezone.now() - timedelta(seconds=1))
    unsigned: list[dict[str, Any]] = [{}, {"api_key": "pgd_nonsense"}, {"api_key": text}, {"api_key": expired_text}]
    for fields in unsigned:
        socket = await stranger()
        await socket.send("hello", version=1, **fields)
        assert await socket.expect_close() == 4401


@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "http://localhost.evil.example", "null", "file://localhost"]
)
async def test_a_page_of_another_site_cannot_use_the_cookie(
    stranger: Callable[..., Awaitable[Socket]], acme: Any, origin: str | None
) -> None:
    socket = await stranger(acme.member, origin=origin)
    await socket.send("hello", version=1)
    assert await socket.expect_close() == 4401


async def test_a_stranger_to_the_tenant_is_not_let_in(
    stranger: Callable[..., Awaitable[Socket]], make_key: Any, acme: Any, rival: Any, operator: User
) -> None:
    _, text = await make_key(acme)
    cases: list[tuple[User | None, dict[str, Any]]] = [
        (acme.member, {"tenant": "rival"}),
        (acme.member, {"tenant": "unknown"}),
        (operator, {}),
        (None, {"tenant": "rival", "api_key": text}),
    ]
    for user, fields in cases:
        socket = await stranger(user)
        await socket.send("hello", version=1, **fields)
        assert await socket.expect_close() == 4403


async def test_a_suspended_tenant_is_closed_to_its_members(
    stranger: Callable[..., Awaitable[Socket]], acme: Any
) -> None:
    await database_sync_to_async(type(acme.tenant).objects.filter(pk=acme.tenant.pk).update)(is_active=False)
    socket = await stranger(acme.member)
    await socket.send("hello", version=1)
    assert await socket.expect_close() == 4403


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_watch, "INTERVAL_S", 0.05)


async def test_a_removed_member_is_shown_out(
    quick_watch: None, socket: Socket, rival_socket: Socket, acme: Any
) -> None:
    await database_sync_to_async(Membership.across_tenants.filter(user=acme.member).delete)()
    assert await socket.expect_close() == 4403
    assert await rival_socket.request("ping", "pong")


async def test_a_suspended_tenants_sockets_are_closed(
    quick_watch: None, socket: Socket, rival_socket: Socket, acme: Any
) -> None:
    await database_sync_to_async(type(acme.tenant).objects.filter(pk=acme.tenant.pk).update)(is_active=False)
    assert await socket.expect_close() == 4403
    assert await rival_socket.request("ping", "pong")


async def test_signing_out_closes_the_socket(quick_watch: None, web: str, acme: Any) -> None:
    session = await database_sync_to_async(sign_in)(acme.member)
    socket = Socket(session.session_key)
    await socket.hello()
    await database_sync_to_async(session.delete)()
    assert await socket.expect_close() == 4401


async def test_a_revoked_key_closes_its_sockets(
    quick_watch: None, stranger: Callable[..., Awaitable[Socket]], make_key: Any, acme: Any
) -> None:
    key, text = await make_key(acme)
    socket = await stranger(origin=None)
    await socket.send("hello", version=1, api_key=text)
    await socket.expect("welcome")
    await database_sync_to_async(ApiKey.across_tenants.filter(pk=key.pk).update)(revoked=timezone.now())
    assert await socket.expect_close() == 4401
