"""Sockets end when the right to them ends: one look every few seconds for all sockets of the process together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from pagoda.chat.identity import NOT_A_MEMBER, NOT_SIGNED_IN, Identity
from pagoda.generations.cancellation import end
from pagoda.tenants.models import ApiKey, Membership, Scope

logger = logging.getLogger(__name__)

INTERVAL_S = 3.0
BATCH = 500
SESSIONS_IN_DATABASE = ("django.contrib.sessions.backends.db", "django.contrib.sessions.backends.cached_db")

Close = Callable[[int], Awaitable[None]]

_sockets: dict[Close, Identity] = {}
_task: asyncio.Task[None] | None = None
_closings: set[asyncio.Task[None]] = set()


def watch(identity: Identity, close: Close) -> None:
    """Have ``close`` called with a close code as soon as the identity may no longer work in its tenant."""
    _sockets[close] = identity


def forget(close: Close) -> None:
    """The socket is gone."""
    _sockets.pop(close, None)


async def start() -> None:
    """Run with the server's start."""
    global _task
    _task = asyncio.create_task(_look_again_and_again())


async def stop() -> None:
    """Run when the server stops."""
    if _task is not None:
        await end([_task, *_closings])
    _sockets.clear()


async def _look_again_and_again() -> None:
    while True:
        await asyncio.sleep(INTERVAL_S)
        sockets = dict(_sockets)
        try:
            ended = await database_sync_to_async(ended_rights)(list(sockets.values())) if sockets else {}
        except DatabaseError:
            logger.exception("the rights of open sockets could not be checked")
            continue
        for close, identity in sockets.items():
            code = ended.get(id(identity))
            if code is not None and close in _sockets:
                forget(close)
                # A task each: a client that does not read must not keep others' sockets open.
                closing = asyncio.create_task(_close(close, code))
                _closings.add(closing)
                closing.add_done_callback(_closings.discard)


async def _close(close: Close, code: int) -> None:
    try:
        await close(code)
    except Exception as error:
        logger.info("a socket could not be closed: %r", error)


def ended_rights(identities: Iterable[Identity]) -> dict[int, int]:
    """``id()`` of each identity that lost its right -> close code. Two or three queries per BATCH identities."""
    ended: dict[int, int] = {}
    for batch in _batches(identities):
        sessions = _live_sessions([each.session_key for each in batch if each.session_key])
        members = set(
            Membership.across_tenants.filter(
                user_id__in=[each.user.pk for each in batch if each.user], user__is_active=True, tenant__is_active=True
            ).values_list("tenant_id", "user_id")
        )
        usable = ApiKey.across_tenants.filter(
            Q(expires__isnull=True) | Q(expires__gt=timezone.now()),
            pk__in=[each.api_key.pk for each in batch if each.api_key],
            revoked__isnull=True,
            tenant__is_active=True,
        )
        keys = {key.pk for key in usable if key.allows(Scope.CHAT)}
        for each in batch:
            signed_out = sessions is not None and each.session_key is not None and each.session_key not in sessions
            if signed_out or (each.api_key is not None and each.api_key.pk not in keys):
                ended[id(each)] = NOT_SIGNED_IN
            elif each.user is not None and (each.tenant.pk, each.user.pk) not in members:
                ended[id(each)] = NOT_A_MEMBER
    return ended


def _live_sessions(keys: Sequence[str]) -> set[str] | None:
    """Which sessions exist still; None where sessions are not rows of the database."""
    if settings.SESSION_ENGINE not in SESSIONS_IN_DATABASE:
        return None
    live = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    return set(live.values_list("session_key", flat=True))


def _batches(identities: Iterable[Identity]) -> Iterable[Sequence[Identity]]:
    items = list(identities)
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))
