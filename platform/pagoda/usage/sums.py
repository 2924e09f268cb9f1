"""The ledger's sums by member, key, model and day: of the past they are kept, the rest is summed for whoever looks.

So a look costs the same however long the ledger is, and says what the ledger says at that moment: the kept sums end at
a full hour, where the records begin to be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Min, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from pagoda.usage.models import SummedUntil, UsageRecord, UsageSum
from pagoda.usage.models.sums import NEVER

NUMBERS = ("generations", "prompt_tokens", "cached_tokens", "output_tokens")

SETTLED = timedelta(minutes=3)
"""How long after its end an hour is summed: by then everything dated within it is committed."""

Row = dict[str, Any]
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def midnight(day: date) -> datetime:
    """When the day begins (UTC)."""
    return datetime.combine(day, time(), tzinfo=UTC)


def between(records: QuerySet[UsageRecord], first: date, last: date) -> QuerySet[UsageRecord]:
    """The records of these days (UTC), both included."""
    return records.filter(created__gte=midnight(first), created__lt=midnight(last + DAY))


def summed(begin: datetime, end: datetime, *columns: str) -> list[Row]:
    """The NUMBERS of the tenant in scope, by ``columns``: records from ``begin``, a midnight (UTC), to before ``end``.

    columns: some of day, user_id, api_key_id and model. A group may come twice, once from the kept sums.
    """
    while True:
        until = _until()
        kept = UsageSum.objects.filter(begin__gte=begin, begin__lt=min(end, until))
        rows = list(_by(kept, columns, Sum("generations")))
        if end > until:
            records = UsageRecord.objects.filter(created__gte=max(begin, until), created__lt=end)
            if "day" in columns:
                records = records.annotate(day=TruncDate("created", tzinfo=UTC))
            rows += _by(records, columns, Count("id"))
        if _until() == until:  # else more was summed in between, and the two parts may not fit
            return rows


def tokens_since(begin: datetime, now: datetime | None = None) -> int:
    """Prompt and output of the tenant in scope, as they count against a budget."""
    rows = summed(begin, now or timezone.now(), "model")
    return sum(row["prompt_tokens"] + row["output_tokens"] for row in rows)


def keep_sums(since: datetime, now: datetime | None = None) -> int:
    """Sum the days from that of ``since``, or from where it was left where that is earlier. Returns how many rows.

    A day at a time, so that nobody waits long for the database. Sums replace: running twice, side by side, or after
    rows came late, gives the same.
    """
    now = now or timezone.now()
    SummedUntil.objects.get_or_create(pk=1)
    day = min(since, _until()).astimezone(UTC).date()
    first = UsageRecord.across_tenants.aggregate(first=Min("created"))["first"]
    if first is None:
        return 0
    day = max(day, first.astimezone(UTC).date())
    written = 0
    while midnight(day) < now - SETTLED:
        written += _keep_day(day, now)
        day += DAY
    return written


@transaction.atomic
def _keep_day(day: date, now: datetime) -> int:
    mark = SummedUntil.objects.select_for_update().get(pk=1)
    full_hour = (now - SETTLED).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    until = max(mark.until, full_hour)  # never back: what is marked as summed stays so
    UsageSum.across_tenants.filter(day=day).delete()
    rows = [
        UsageSum(begin=begin, day=day, **row)
        for begin, end in _parts(day, until)
        for row in _by(
            UsageRecord.across_tenants.filter(created__gte=begin, created__lt=end),
            ("tenant_id", "user_id", "api_key_id", "model"),
            Count("id"),
        )
    ]
    UsageSum.across_tenants.bulk_create(rows, batch_size=500)
    mark.until = max(mark.until, min(midnight(day + DAY), until))
    mark.save()
    return len(rows)


def _parts(day: date, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The day where it is over, else its hours that are."""
    begin, end = midnight(day), midnight(day + DAY)
    step = DAY if end <= until else HOUR
    while begin + step <= min(end, until):
        yield begin, begin + step
        begin += step


def _by(rows: QuerySet, columns: tuple[str, ...], generations: Count | Sum) -> Any:
    sums = {f"{name}_sum": Sum(name) for name in NUMBERS[1:]}
    found: Any = rows.order_by().values(*columns).annotate(generations_sum=generations, **sums)
    names = {f"{name}_sum": name for name in NUMBERS}
    return ({names.get(name, name): value for name, value in row.items()} for row in found)


def _until() -> datetime:
    """Where the kept sums end."""
    return SummedUntil.objects.values_list("until", flat=True).first() or NEVER
