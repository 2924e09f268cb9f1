"""Idempotency-Key: a call that is repeated under the same key is carried out once, and answered the same each time.

A key belongs to its tenant and is kept for a day. A call that ended without an answer of its own (its caller hung up, a
limit, a fault of the server) frees its key: the next one under it is carried out.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone

from pagoda.api.errors import ApiError
from pagoda.api.event_stream import EventStream, Failed, Last
from pagoda.api.models import IdempotentCall
from pagoda.generations import calls
from pagoda.generations.database_threads import in_database
from pagoda.tenants.models import ApiKey
from pagoda.tenants.scoping import tenant_scope

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
MAX_KEY = 255
KEPT = timedelta(hours=24)
HELD = timedelta(seconds=60)
RENEW_S = 20.0

Carry = Callable[[], Awaitable[HttpResponseBase]]


@dataclass(frozen=True, slots=True)
class _Claim:
    """The row of a call that is carried out now."""

    id: uuid.UUID
    tenant_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What was answered before."""

    status: int
    content_type: str
    body: bytes


async def once(request: HttpRequest, carry_out: Carry) -> HttpResponseBase:
    """``carry_out``, or the answer that it gave before under the request's key. Without a key: just that.

    Raises ApiError: 400 for another request under the key, 409 while the first is in flight.
    """
    text = request.headers.get(HEADER)
    if text is None:
        return await carry_out()
    if not 0 < len(text) <= MAX_KEY or not text.isascii() or not text.isprintable():
        raise ApiError("invalid_value", f"{HEADER} must have 1 to {MAX_KEY} visible ASCII characters.", HEADER)
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    found = await in_database(_claim, key.tenant_id, _hash(text.encode()), _hash(_request_of(request)))
    if isinstance(found, _Recorded):
        return _replayed(found)
    holding = calls.current().run(_hold(found))
    try:
        response = await carry_out()
    except ApiError as error:
        response = error.response()
    except BaseException:
        holding.cancel()
        calls.current().run(in_database(_free, found))
        raise
    if isinstance(response, EventStream):
        recording = _Recording(found, holding)
        response.events = recording.events(response.events)
        response.on_close(recording.close)
        return response
    holding.cancel()
    assert isinstance(response, HttpResponse)
    await asyncio.shield(
        calls.current().run(_keep(found, response.status_code, response["content-type"], response.content))
    )
    return response


async def _keep(claim: _Claim, status: int, content_type: str, body: bytes) -> None:
    if status == 429 or status >= 500:
        await in_database(_free, claim)
    else:
        await in_database(_record, claim, status, content_type, body)


class _Recording:
    """A streamed answer on its way: kept before its last event is sent. One that ends without it frees the key.

    One that ends in an error frees it before the error is sent: who hears of it may ask again at once.
    """

    def __init__(self, claim: _Claim, holding: asyncio.Task[None]) -> None:
        self._claim = claim
        self._holding = holding
        self._over = False

    async def events(self, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        sent: list[bytes] = []
        try:
            async for event in events:
                sent.append(event)
                if isinstance(event, Last):
                    body = b"".join(sent)
                    await asyncio.shield(self._end(in_database(_record, self._claim, 200, "text/event-stream", body)))
                elif isinstance(event, Failed):
                    await asyncio.shield(self._end(in_database(_free, self._claim)))
                yield event
        finally:
            await events.aclose()
            self.close()

    def _end(self, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._over = True
        self._holding.cancel()
        return calls.current().run(ending)

    def close(self) -> None:
        """The stream is over, or never began."""
        if not self._over:
            self._end(in_database(_free, self._claim))


async def _hold(claim: _Claim) -> None:
    """Keep others away for as long as this process carries the call out."""
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(DatabaseError):
                await in_database(_renew, claim)


def _replayed(recorded: _Recorded) -> HttpResponseBase:
    return HttpResponse(
        recorded.body, status=recorded.status, content_type=recorded.content_type, headers={REPLAYED: "true"}
    )


def _request_of(request: HttpRequest) -> bytes:
    return f"{request.method} {request.path}\n".encode() + request.body


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _claim(tenant_id: uuid.UUID, key_hash: str, request_hash: str) -> _Claim | _Recorded:
    with tenant_scope(tenant_id):
        for _ in range(2):
            try:
                with transaction.atomic():
                    return _claim_once(tenant_id, key_hash, request_hash)
            except IntegrityError:
                continue  # somebody else's was first: theirs is there now
    raise ApiError("idempotency_in_progress", "A call with this key is in progress: wait for it.", HEADER)


def _claim_once(tenant_id: uuid.UUID, key_hash: str, request_hash: str) -> _Claim | _Recorded:
    now = timezone.now()
    row = IdempotentCall.objects.select_for_update().filter(key_hash=key_hash).first()
    if row is not None and row.created < now - KEPT:
        row.delete()
        row = None
    if row is None:
        row = IdempotentCall.objects.create(
            tenant_id=tenant_id, key_hash=key_hash, request_hash=request_hash, held_until=now + HELD
        )
        return _Claim(row.pk, tenant_id)
    if row.request_hash != request_hash:
        raise ApiError("idempotency_key_reused", "This key was used for another request: take a new one.", HEADER)
    if row.status:
        return _Recorded(row.status, row.content_type, bytes(row.body))
    if row.held_until > now:
        raise ApiError(
            "idempotency_in_progress", "A call with this key is in progress: wait for it.", HEADER, retry_after_s=1
        )
    row.held_until = now + HELD
    row.save(update_fields=["held_until"])
    return _Claim(row.pk, tenant_id)


def _renew(claim: _Claim) -> None:
    with tenant_scope(claim.tenant_id):
        IdempotentCall.objects.filter(pk=claim.id, status=0).update(held_until=timezone.now() + HELD)


def _record(claim: _Claim, status: int, content_type: str, body: bytes) -> None:
    with tenant_scope(claim.tenant_id):
        IdempotentCall.objects.filter(pk=claim.id, status=0).update(status=status, content_type=content_type, body=body)


def _free(claim: _Claim) -> None:
    with tenant_scope(claim.tenant_id):
        IdempotentCall.objects.filter(pk=claim.id, status=0).delete()


def forget_old() -> int:
    """Delete what is older than a day. Returns how many."""
    return IdempotentCall.across_tenants.filter(created__lt=timezone.now() - KEPT).delete()[0]
