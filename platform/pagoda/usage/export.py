"""The ledger as CSV (RFC 4180), streamed: a page of records at a time, however many there are."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import nullcontext
from datetime import UTC, date, timedelta
from typing import Any

from channels.db import database_sync_to_async
from django.db.models import Q
from django.http import StreamingHttpResponse

from pagoda.tenants.scoping import tenant_scope
from pagoda.usage.models import Price, UsageRecord
from pagoda.usage.pricing import PriceLists
from pagoda.usage.sums import midnight

PAGE = 2000
"""Records read, and sent, at a time."""

COLUMNS = (
    *("created_utc", "generation_id", "tenant", "member", "key_prefix", "key_label", "model", "purpose"),
    *("prompt_tokens", "cached_tokens", "output_tokens", "cost", "currency"),
)

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a cell begins that a spreadsheet may compute (OWASP, CSV injection), full-width forms included."""

Page = list[UsageRecord]


def response(first: date, last: date, *, tenant_id: uuid.UUID | None) -> StreamingHttpResponse:
    """The records of these days (UTC, both included) of one tenant; None: of all, which operators alone may ask for."""
    body = _lines(lambda after: _page(first, last, tenant_id, after))
    answer = StreamingHttpResponse(body, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="usage-{first}-{last}.csv"'
    answer["Cache-Control"] = "no-store"
    return answer


def harmless(text: str) -> str:
    """Text as no spreadsheet computes it: what looks like a formula gets an apostrophe before it."""
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA_STARTS) or text.startswith(FORMULA_STARTS) else text


async def _lines(read: Callable[[UsageRecord | None], tuple[Page, PriceLists]]) -> AsyncIterator[bytes]:
    yield _written([COLUMNS])
    last: UsageRecord | None = None
    while True:
        page, prices = await database_sync_to_async(read)(last)
        if page:
            yield _written(_cells(record, prices) for record in page)
        if len(page) < PAGE:
            return
        last = page[-1]


def _page(first: date, last: date, tenant_id: uuid.UUID | None, after: UsageRecord | None) -> tuple[Page, PriceLists]:
    with tenant_scope(tenant_id) if tenant_id is not None else nullcontext():
        manager = UsageRecord.objects if tenant_id is not None else UsageRecord.across_tenants
        begin = midnight(first) if after is None else after.created
        records = manager.select_related("tenant", "user", "api_key").filter(created__gte=begin)
        records = records.filter(created__lt=midnight(last + timedelta(days=1)))
        if after is not None:
            records = records.filter(Q(created__gt=after.created) | Q(created=after.created, pk__gt=after.pk))
        page = list(records.order_by("created", "pk")[:PAGE])
        of_page = {record.tenant_id for record in page}
        return page, PriceLists(Price.across_tenants.filter(tenant_id__in=of_page))


def _cells(record: UsageRecord, prices: PriceLists) -> list[Any]:
    numbers = (record.prompt_tokens, record.cached_tokens, record.output_tokens)
    created = record.created.astimezone(UTC)
    costs = prices.cost(record.tenant_id, created.date(), *numbers)
    currency, cost = next(iter(costs.items()), ("", ""))
    key = record.api_key
    return [
        created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        record.generation_id,
        harmless(record.tenant.slug),
        harmless(record.user.email if record.user else ""),
        f"pgd_{key.prefix}" if key else "",
        harmless(key.label if key else ""),
        harmless(record.model),
        harmless(record.purpose),
        *numbers,
        f"{cost:f}" if cost != "" else "",
        harmless(currency),
    ]


def _written(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
