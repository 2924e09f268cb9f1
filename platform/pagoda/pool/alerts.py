"""What an operator should look at: quotas that a pool cannot honour any more, and what the engines say themselves."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _

from pagoda.engines import reports
from pagoda.pool import capacity
from pagoda.pool.models import EnginePool


def current() -> list[str]:
    """One sentence each."""
    return [*_shrunk(), *_scaled(), *_of_engines()]


def _shrunk() -> list[str]:
    pool, reserved = capacity.smallest(), capacity.reserved()
    if pool is not None and reserved > pool.total_blocks:
        text = _("Tenants reserve %(reserved)s blocks, but the pool has %(total)s: reservations are scaled down.")
        return [text % {"reserved": f"{reserved:,}", "total": f"{pool.total_blocks:,}"}]
    return []


def _scaled() -> list[str]:
    text = _("The engine at %(address)s works with %(percent)s of every reservation.")
    rows = EnginePool.objects.filter(address__in=settings.PAGODA_ENGINES, scaled__lt=1).order_by("address")
    return [text % {"address": row.address, "percent": f"{100 * row.scaled:.0f} %"} for row in rows]


def _of_engines() -> list[str]:
    """As this process last heard them."""
    latest = [
        (address, reports.latest(address)) for address in settings.PAGODA_ENGINES if reports.is_reachable(address)
    ]
    several = len(settings.PAGODA_ENGINES) > 1
    return [
        f"{address}: {alert}" if several else alert
        for address, report in latest
        if report is not None
        for alert in report.alerts
    ]
