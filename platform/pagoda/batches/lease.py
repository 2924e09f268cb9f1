"""Who carries a batch out: a lease in its row, taken over when it runs out.

Every write of a runner names the owner it believes to be; a batch that somebody else took over is not touched.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from django.db import transaction
from django.db.models import Min
from django.utils import timezone

from pagoda.batches.models import Batch
from pagoda.batches.models.batches import Status
from pagoda.batches.objects import BatchError
from pagoda.generations.lease import new_owner
from pagoda.tenants.models import ApiKey, Scope
from pagoda.tenants.scoping import TenantQuerySet

LEASE_S = 15.0
"""How long a runner may be silent."""

AT_ONCE = 64
"""Batches that one runner carries out side by side at most: one of each tenant, whoever came first."""

SECONDS_WITHIN = 16
"""A tenant has a second one while so few run, and no other tenant waits for its first."""

OTHERS_FIRST = 8
"""How many of a tenant's batches are tried: runners on other machines may take some meanwhile."""


@dataclass(frozen=True, slots=True)
class Held:
    """A batch as its row is now, and the key it runs under; None: there is none (any more) that may."""

    batch: Batch
    key: ApiKey | None


def claim(owner: str, running: Collection[Batch]) -> list[Held]:
    """Take batches that nobody carries out: every tenant's oldest first, then second ones. Two that try at once never
    get the same one."""
    of_tenants = Counter(batch.tenant_id for batch in running)
    waiting = _free().order_by().values("tenant_id").annotate(oldest=Min("created")).order_by("oldest")
    tenants = list(waiting.values_list("tenant_id", flat=True))
    claimed: list[uuid.UUID] = []
    for has, most in enumerate((AT_ONCE, SECONDS_WITHIN)):
        for tenant_id in tenants:
            if len(running) + len(claimed) >= most:
                break
            if of_tenants[tenant_id] == has and (id := _take_oldest(tenant_id, owner)):
                of_tenants[tenant_id] += 1
                claimed.append(id)
    return [_held(batch) for batch in _rows().filter(pk__in=claimed)]


def any_free() -> bool:
    """Whether a batch waits for somebody to carry it out."""
    return _free().exists()


def renew(batch_id: uuid.UUID, owner: str) -> Held | None:
    """Keep the lease; None where it is lost or the batch gone."""
    held = Batch.across_tenants.filter(pk=batch_id, lease_owner=owner, finished__isnull=True)
    if not held.update(lease_expires=_expiry()):
        return None
    row = _rows().filter(pk=batch_id).first()
    return None if row is None else _held(row)


def release(batch_id: uuid.UUID, owner: str) -> None:
    """Give the lease up: the next runner goes on at once."""
    Batch.across_tenants.filter(pk=batch_id, lease_owner=owner).update(lease_owner="", lease_expires=timezone.now())


@transaction.atomic
def begin_finalizing(
    batch_id: uuid.UUID, owner: str, outcome: str, why: BatchError | None, now: datetime
) -> str | None:
    """Let no result of a line be written any more: the lease goes on under a new owner, who is returned.

    why: the reason of an early end, for the batch's errors. A cancellation that came meanwhile counts. None where the
    lease is lost.
    """
    batch = Batch.across_tenants.select_for_update().filter(pk=batch_id, lease_owner=owner).first()
    if batch is None or batch.finished is not None:
        return None
    if batch.status == Status.CANCELLING:
        outcome = Status.CANCELLED
    else:
        batch.status = Status.FINALIZING
    batch.outcome = batch.outcome or outcome
    if why is not None:
        batch.errors = [*batch.errors, msgspec.to_builtins(why)]
    batch.finalizing_at = batch.finalizing_at or now
    batch.lease_owner = new_owner()
    batch.lease_expires = _expiry()
    batch.save(update_fields=["status", "outcome", "errors", "finalizing_at", "lease_owner", "lease_expires"])
    return batch.lease_owner


def _rows() -> TenantQuerySet[Batch]:
    rows: TenantQuerySet[Batch] = Batch.across_tenants.select_related("tenant", "api_key__tenant")
    return rows


def _held(batch: Batch) -> Held:
    """A key that was rotated lives on in the one that took its place."""
    key = batch.api_key
    while key is not None and key.replaced_by_id and key.revoked is None and not key.is_usable:
        key = ApiKey.across_tenants.select_related("tenant").filter(pk=key.replaced_by_id).first()
    usable = key is not None and key.is_usable and key.tenant.is_active and key.allows(Scope.BATCH)
    return Held(batch, key if usable else None)


def _free() -> TenantQuerySet[Batch]:
    free: TenantQuerySet[Batch] = Batch.across_tenants.filter(finished__isnull=True, lease_expires__lte=timezone.now())
    return free


def _take_oldest(tenant_id: uuid.UUID, owner: str) -> uuid.UUID | None:
    """None where others were first with every one that was looked at."""
    oldest = _free().filter(tenant_id=tenant_id).order_by("created").values_list("pk", flat=True)
    for id in list(oldest[:OTHERS_FIRST]):
        if _free().filter(pk=id).update(lease_owner=owner, lease_expires=_expiry()):
            return id
    return None


def _expiry() -> datetime:
    return timezone.now() + timedelta(seconds=LEASE_S)
