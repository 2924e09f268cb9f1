"""What an operator should look at: quotas that a pool cannot honour any more, and what the engines say themselves."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _

from pagoda.engines import reports
from pagoda.pool import capacity
from pagoda.pool.models import EnginePool


def current() -> list[str]:
    """One sentence each."""
    return [*_shrunk(), *(alert for address in settings.PAGODA_ENGINES for alert in _of_engine(address))]


def _shrunk() -> list[str]:
    pool, reserved = capacity.smallest(), capacity.reserved()
    if pool is not None and reserved > pool.total_blocks:
        text = _("Tenants reserve %(reserved)s blocks, but the pool has %(total)s: reservations are scaled down.")
        return [text % {"reserved": f"{reserved:,}", "total": f"{pool.total_blocks:,}"}]
    return []


def _of_engine(address: str) -> list[str]:
    """What it says itself, as this process last heard it; else what it answered when it got the quotas."""
    report = reports.latest(address) if reports.is_reachable(address) else None
    if report is not None and report.alerts:
        several = len(settings.PAGODA_ENGINES) > 1
        return [f"{address}: {alert}" if several else alert for alert in report.alerts]
    scaled = EnginePool.objects.filter(address=address, scaled__lt=1).values_list("scaled", flat=True).first()
    if scaled is None:
        return []
    text = _("The engine at %(address)s works with %(percent)s of every reservation.")
    return [text % {"address": address, "percent": f"{100 * scaled:.0f} %"}]
