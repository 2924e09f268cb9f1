"""Meters brought in line with the ledger and the open holds: what went wrong stays wrong for an hour at most."""

from __future__ import annotations

import logging
import uuid
from collections import Counter, defaultdict
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Sum
from django.utils import timezone

from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import tenant_scope
from pagoda.usage import meters
from pagoda.usage.models import Meter, OpenHold, UsageRecord

logger = logging.getLogger(__name__)

LOST = timedelta(days=3)
"""Every generation settles, also that of a process that died. A hold this old belongs to none that anybody knows."""


def recount(now: datetime | None = None) -> int:
    """Every meter once. Returns how many were wrong."""
    now = now or timezone.now()
    tenants = Tenant.objects.filter(pk__in=Meter.across_tenants.values("tenant_id"))
    return sum(_recount_tenant(tenant, now) for tenant in tenants)


def _recount_tenant(tenant: Tenant, now: datetime) -> int:
    with tenant_scope(tenant.pk), transaction.atomic():
        # Whoever holds or settles waits for these rows: what is summed below cannot change meanwhile.
        locked = meters.lock(list(Meter.objects.values_list("subject", flat=True)), now)
        lost, _ = OpenHold.objects.filter(created__lt=now - LOST).delete()
        if lost:
            logger.warning("tenant %s: %d holds were never settled and are given back", tenant.slug, lost)
        used, open_now = _used(now), _open()
        wrong = []
        for meter in locked:
            before = (meter.used, meter.held, meter.running)
            of_tenant = meter.subject == tenant.pk
            meter.used = sum(used.values()) if of_tenant else used[meter.subject]
            rows = open_now.values() if of_tenant else [open_now[meter.subject]]
            meter.held, meter.running = sum(row[0] for row in rows), sum(row[1] for row in rows)
            if before != (meter.used, meter.held, meter.running):
                wrong.append(meter)
        meters.save(wrong)
        return len(wrong)


def _used(now: datetime) -> Counter[uuid.UUID | None]:
    """Tokens of this month by key; None: of people."""
    records = UsageRecord.objects.filter(created__gte=meters.start_of_month(now)).order_by()
    rows = records.values_list("api_key_id").annotate(Sum("prompt_tokens"), Sum("output_tokens"))
    return Counter({key_id: prompt + output for key_id, prompt, output in rows})


def _open() -> defaultdict[uuid.UUID | None, tuple[int, int]]:
    """Tokens and number of the open holds, by key."""
    rows = OpenHold.objects.order_by().values_list("api_key_id").annotate(Sum("tokens"), Count("pk"))
    return defaultdict(lambda: (0, 0), {key_id: (tokens, count) for key_id, tokens, count in rows})
