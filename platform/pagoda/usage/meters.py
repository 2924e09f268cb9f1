"""Meters: locked, brought to the present month, counted. All under the tenant's scope, in the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import UTC, date, datetime

from django.db.models import F, Sum

from pagoda.tenants.scoping import current_tenant_id
from pagoda.usage.models import Meter, UsageRecord

_there: set[uuid.UUID] = set()
"""Subjects whose meters this process has seen: nobody has to look whether there is one. Meters are never taken away."""


def month_of(now: datetime) -> date:
    """The first day of the month (UTC)."""
    return now.astimezone(UTC).date().replace(day=1)


def start_of_month(now: datetime) -> datetime:
    """Midnight before its first day (UTC)."""
    first = month_of(now)
    return datetime(first.year, first.month, 1, tzinfo=UTC)


def end_of_month(now: datetime) -> datetime:
    """When the next month begins (UTC)."""
    first = month_of(now)
    return datetime(first.year + first.month // 12, first.month % 12 + 1, 1, tzinfo=UTC)


def lock(
    subjects: Collection[uuid.UUID], now: datetime, *, make: bool = False, besides: uuid.UUID | None = None
) -> list[Meter]:
    """The meters of these subjects (the tenant's id, or those of its keys), in the order in which everybody locks them.

    make: also those that do not exist yet. besides: a generation whose record, where it is written already, the caller
    is about to count.
    """
    if make and not _there.issuperset(subjects):
        _make_missing(subjects)
    meters = _locked(subjects)
    if make and len(meters) < len(subjects):
        # Rows that this process has seen are gone: somebody deleted them.
        _make_missing(subjects)
        meters = _locked(subjects)
    for meter in meters:
        if meter.month != month_of(now):
            meter.month, meter.used = month_of(now), used_since_month(meter.subject, now, besides)
    return meters


def count(subjects: Collection[uuid.UUID], tokens: int, now: datetime, generation_id: uuid.UUID) -> None:
    """Tokens of a generation that held nothing. Subjects that were never limited have no meter."""
    meters = lock(subjects, now, besides=generation_id)
    for meter in meters:
        meter.used += tokens
    save(meters)


def save(meters: Collection[Meter]) -> None:
    """One statement each: quicker to make for one or two than one for all."""
    for meter in meters:
        meter.save(force_update=True, update_fields=("minute", "running", "month", "used", "held"))


def used_since_month(subject: uuid.UUID, now: datetime, besides: uuid.UUID | None = None) -> int:
    """Tokens of the tenant in scope, or of one of its keys, in the ledger of this month, without one generation's."""
    records = UsageRecord.objects.filter(created__gte=start_of_month(now)).order_by()
    if subject != current_tenant_id():
        records = records.filter(api_key_id=subject)
    if besides is not None:
        records = records.exclude(generation_id=besides)
    return records.aggregate(sum=Sum(F("prompt_tokens") + F("output_tokens")))["sum"] or 0


def _locked(subjects: Collection[uuid.UUID]) -> list[Meter]:
    return list(Meter.objects.select_for_update().filter(subject__in=subjects).order_by("subject"))


def _make_missing(subjects: Collection[uuid.UUID]) -> None:
    """Before anything is locked, and in the order of the locks: two that make the same meters never deadlock."""
    there = set(Meter.objects.filter(subject__in=subjects).values_list("subject", flat=True))
    _there.update(there)
    missing = [Meter(subject=each) for each in sorted(subjects) if each not in there]
    if missing:
        Meter.objects.bulk_create(missing, ignore_conflicts=True)
