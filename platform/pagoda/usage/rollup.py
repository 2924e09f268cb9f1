"""Summing the ledger: by tenant, model and hour for operators, and the sums that are kept for everybody's totals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, Sum
from django.db.models.functions import TruncHour
from django.utils import timezone

from pagoda.usage.models import UsageHour, UsageRecord
from pagoda.usage.sums import NUMBERS as SUMS
from pagoda.usage.sums import keep_sums

LATE = timedelta(hours=48)
"""How far back every run looks again: a row is dated when its generation was made, and settled later."""


def roll_up(since: datetime | None = None, now: datetime | None = None) -> int:
    """Recompute the hours from ``since`` until ``now``, by default this moment. Returns how many were written.

    The default is LATE ago, or the last hour known where the task has not run for longer. Sums replace, they are never
    added to: running twice, or after rows came late, gives the same hours. The present hour is included, and is
    complete after the next run. The sums of ``usage.sums`` are computed again as well.
    """
    start = (since or _first_open_hour()).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    keep_sums(start, now)
    records = UsageRecord.across_tenants.filter(created__gte=start).order_by()
    sums: Any = (
        records.annotate(hour=TruncHour("created", tzinfo=UTC))
        .values("tenant_id", "model", "hour")
        .annotate(generations=Count("id"), **{f"{name}_sum": Sum(name) for name in SUMS[1:]})
    )
    with transaction.atomic():
        hours = [
            UsageHour(
                tenant_id=row["tenant_id"],
                model=row["model"],
                hour=row["hour"],
                generations=row["generations"],
                **{name: row[f"{name}_sum"] for name in SUMS[1:]},
            )
            for row in sums
        ]
        UsageHour.across_tenants.bulk_create(
            hours, update_conflicts=True, unique_fields=["tenant", "hour", "model"], update_fields=SUMS, batch_size=500
        )
    return len(hours)


def _first_open_hour() -> datetime:
    known = UsageHour.across_tenants.aggregate(last=Max("hour"))["last"]
    return min(known, timezone.now() - LATE) if known else datetime(2000, 1, 1, tzinfo=UTC)
