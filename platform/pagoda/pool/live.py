"""The KV pool as the live page shows it: numbers of every account, and whether they add up."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from pagoda.engines import connections, reports
from pagoda.pool import capacity
from pagoda.pool.models import QuotaVersion
from pagoda.tenants.models import Tenant
from pagoda_inference.client import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import AccountReport, PoolReport

STALE_S = 5.0


def live() -> dict[str, Any]:
    """Everything the page draws, for every engine. JSON types only; blocks, tokens and MiB are all given."""
    names = {str(id): name for id, name in Tenant.objects.values_list("id", "name")}
    return {
        "time": time.time(),
        "version": QuotaVersion.current(),
        "alerts": _alerts(),
        "engines": [_engine(address, names) for address in settings.PAGODA_ENGINES],
    }


def current_report(address: str) -> PoolReport | None:
    """The engine's last report; asked for directly where this process keeps no watch. None: it cannot be reached."""
    age = reports.age_s(address)
    if age is not None and age < STALE_S and reports.is_reachable(address):
        return reports.latest(address)
    try:
        with connections.sync_client(address, 1.0) as client:
            return client.watch_once()
    except (EngineUnavailable, EngineRefused):
        return None


def _alerts() -> list[str]:
    pool, reserved = capacity.smallest(), capacity.reserved()
    if pool is not None and reserved > pool.total_blocks:
        text = _("Tenants reserve %(reserved)s blocks, but the pool has %(total)s: reservations are scaled down.")
        return [text % {"reserved": f"{reserved:,}", "total": f"{pool.total_blocks:,}"}]
    return []


def _engine(address: str, names: dict[str, str]) -> dict[str, Any]:
    report = current_report(address)
    if report is None:
        return {"address": address, "reachable": False}
    held = sum(account.active + account.cached for account in report.accounts)
    model = connections.model_of(address)
    return {
        "address": address,
        "reachable": True,
        "model": model.id if model else "",
        "device": model.device if model else "",
        "instance": report.instance,
        "step": report.step,
        "accounts_version": report.accounts_version,
        "block_size": report.block_size,
        "bytes_per_block": report.bytes_per_block,
        "total": report.total,
        "free": report.free,
        "active": sum(account.active for account in report.accounts),
        "cached": sum(account.cached for account in report.accounts),
        "held": held,
        "adds_up": report.free + held == report.total,
        "hit_tokens": sum(account.hit_tokens for account in report.accounts),
        "queried_tokens": sum(account.queried_tokens for account in report.accounts),
        "accounts": [_account(account, names, report) for account in report.accounts],
        "history": _history(address),
    }


def _account(account: AccountReport, names: dict[str, str], report: PoolReport) -> dict[str, Any]:
    held = account.active + account.cached
    return {
        "id": account.id,
        "name": names.get(account.id, account.id),
        "active": account.active,
        "cached": account.cached,
        "shared": account.shared,
        "held": held,
        "held_tokens": held * report.block_size,
        "held_mib": round(held * report.bytes_per_block / capacity.MIB, 2),
        "reservation": account.reservation,
        "reserved_unused": account.reserved_unused,
        "limit": account.limit,
        "weight": account.weight,
        "running": account.running,
        "waiting": account.waiting,
        "hit_tokens": account.hit_tokens,
        "queried_tokens": account.queried_tokens,
        "hit_rate": round(account.hit_tokens / account.queried_tokens, 4) if account.queried_tokens else None,
        "tokens_in": account.tokens_in,
        "tokens_out": account.tokens_out,
        "evictions": dict(account.evictions),
        "evicted_by": {names.get(id, id): count for id, count in account.evicted_by.items()},
        "preemptions": dict(account.preemptions),
        "queue_wait_s": round(account.queue_wait_s, 3),
    }


def _history(address: str) -> list[dict[str, int]]:
    return [
        {
            "step": report.step,
            "active": sum(account.active for account in report.accounts),
            "cached": sum(account.cached for account in report.accounts),
            "tokens_out": sum(account.tokens_out for account in report.accounts),
        }
        for report in reports.history(address)
    ]
