"""Telling tenants of batches that ended: written with the end, signed, sent again until it is taken in.

Signed as Standard Webhooks 1.0.0 has it (HMAC-SHA256 over id, timestamp and payload). Every attempt is a row that is
due; beat looks for them, so that a worker that dies loses none. A look ends soon, whoever does not answer: the worker
has other work.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from functools import partial
from itertools import zip_longest

import msgspec
from celery import current_app
from django.db import transaction
from django.db.models import Min
from django.utils import timezone

from pagoda.batches.models import Batch, Webhook, WebhookAttempt, WebhookDelivery
from pagoda.batches.pinned_post import PostFailed, post
from pagoda.batches.public_address import AddressRefused, parse, resolve
from pagoda.tenants.scoping import tenant_scope

logger = logging.getLogger(__name__)

BACKOFF_S = (5, 30, 120, 600, 3600, 3 * 3600, 8 * 3600)
"""After each attempt that failed; after the last of these it is given up."""
AT_ONCE = 8
"""Deliveries under way at a time."""
OF_A_TENANT = 4
"""Deliveries of one look at most: nobody's addresses that do not answer hold up the others'."""
LOOK_S = 10.0
"""After so long a look begins no further delivery."""
KEPT = timedelta(days=30)
SEND = "batches.send_webhooks"


class _Subject(msgspec.Struct, frozen=True):
    id: str


class Event(msgspec.Struct, frozen=True):
    """What is sent: OpenAI's event. The batch itself is to be asked for."""

    id: str
    created_at: int
    type: str
    data: _Subject
    object: str = "event"


def announce(batch: Batch) -> None:
    """Note whom to tell that the batch has ended. In the transaction of its end, under the tenant's scope."""
    webhooks = list(Webhook.objects.filter(is_active=True))
    now = timezone.now()
    for webhook in webhooks:
        delivery = WebhookDelivery(tenant=batch.tenant, webhook=webhook, event=f"batch.{batch.status}")
        event = Event(_event_id(delivery), int(now.timestamp()), delivery.event, _Subject(batch.public_id))
        delivery.payload = msgspec.json.encode(event).decode()
        delivery.save()
    if webhooks:
        transaction.on_commit(partial(current_app.send_task, SEND), robust=True)


def send_due(now: datetime | None = None) -> int:
    """Send what is due. Returns how many attempts were made. Two that look at once never send the same one."""
    now = now or timezone.now()
    until = time.monotonic() + LOOK_S
    attempts = 0
    under_way: dict[Future[_Answer], WebhookDelivery] = {}
    with ThreadPoolExecutor(AT_ONCE, "webhook") as pool:
        for due in _due(now):
            if time.monotonic() >= until:
                break
            delivery = _claim(due, now)
            if delivery is not None:
                under_way[pool.submit(_send, delivery, now)] = delivery
                attempts += 1
            if len(under_way) == AT_ONCE:
                _note_answers(under_way, FIRST_COMPLETED)
        _note_answers(under_way, ALL_COMPLETED)
    return attempts


def forget_old() -> int:
    """Delete deliveries that ended long ago. Returns how many."""
    return WebhookDelivery.across_tenants.filter(created__lt=timezone.now() - KEPT, due__isnull=True).delete()[0]


def signed(webhook: Webhook, message_id: str, at: datetime, payload: str) -> dict[str, str]:
    """The headers that prove where a payload comes from, and when."""
    timestamp = str(int(at.timestamp()))
    signature = hmac.digest(webhook.signing_key(), f"{message_id}.{timestamp}.{payload}".encode(), hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def _due(now: datetime) -> Iterator[WebhookDelivery]:
    """Every tenant's oldest, then second ones, and so on: OF_A_TENANT at most."""
    due = WebhookDelivery.across_tenants.filter(due__lte=now)
    waiting = due.order_by().values("tenant_id").annotate(oldest=Min("due")).order_by("oldest")
    of_tenants = [
        list(due.filter(tenant_id=tenant_id).order_by("due")[:OF_A_TENANT])
        for tenant_id in waiting.values_list("tenant_id", flat=True)
    ]
    for each in zip_longest(*of_tenants):
        yield from (delivery for delivery in each if delivery is not None)


def _claim(due: WebhookDelivery, now: datetime) -> WebhookDelivery | None:
    """The row with its attempt counted and noted; None where somebody else was first."""
    tried = due.attempts
    again = now + timedelta(seconds=BACKOFF_S[tried]) if tried < len(BACKOFF_S) else None
    with tenant_scope(due.tenant_id), transaction.atomic():
        free = WebhookDelivery.objects.filter(pk=due.pk, attempts=tried, due__lte=now)
        if not free.update(attempts=tried + 1, due=again):
            return None
        WebhookAttempt.objects.create(tenant_id=due.tenant_id, delivery_id=due.pk, number=tried + 1)
        return WebhookDelivery.objects.select_related("webhook").get(pk=due.pk)


class _Answer(msgspec.Struct, frozen=True):
    """What became of one attempt. text: for operators."""

    taken_in: bool
    text: str


def _send(delivery: WebhookDelivery, now: datetime) -> _Answer:
    """In a thread of its own: nothing here uses the database."""
    headers = {
        "content-type": "application/json",
        "user-agent": "Pagoda",
        **signed(delivery.webhook, _event_id(delivery), now, delivery.payload),
    }
    try:
        if not delivery.webhook.is_active:
            raise AddressRefused("The webhook is not active any more.")
        target = parse(delivery.webhook.url)
        status = post(target, resolve(target), delivery.payload.encode(), headers)
    except (AddressRefused, PostFailed) as failure:
        return _Answer(False, str(failure))
    except Exception as error:  # whatever one address leads to, the others' answers are noted
        logger.exception("webhook delivery %s", delivery.pk)
        return _Answer(False, type(error).__name__)
    return _Answer(200 <= status < 300, f"HTTP {status}")


def _note_answers(under_way: dict[Future[_Answer], WebhookDelivery], until: str) -> None:
    """Wait, and write down what has come."""
    for future in wait(under_way, return_when=until).done:
        delivery, answer = under_way.pop(future), future.result()
        if not answer.taken_in:
            logger.warning("webhook delivery %s, attempt %d: %s", delivery.pk, delivery.attempts, answer.text)
        _note(delivery, answer, timezone.now())


def _note(delivery: WebhookDelivery, answer: _Answer, now: datetime) -> None:
    """Write down what became of the attempt that ``delivery`` was claimed for. A later one may have begun meanwhile:
    its result, and when the next one is due, are its own to say, unless this one was taken in."""
    with tenant_scope(delivery.tenant_id), transaction.atomic():
        row = WebhookDelivery.objects.filter(pk=delivery.pk)
        if answer.taken_in:
            row.update(result=answer.text, delivered=now, due=None)
        else:
            row.filter(attempts=delivery.attempts, delivered__isnull=True).update(result=answer.text)
        attempt = WebhookAttempt.objects.filter(delivery_id=delivery.pk, number=delivery.attempts)
        attempt.update(ended=now, result=answer.text)


def _event_id(delivery: WebhookDelivery) -> str:
    return f"evt_{delivery.pk.hex}"
