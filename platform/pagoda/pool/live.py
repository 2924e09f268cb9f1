"""The KV pool as the live page shows it: numbers of every account, and whether they add up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from pagoda.engines import connections, reports
from pagoda.pool import alerts, capacity
from pagoda.pool.models import QuotaVersion
from pagoda.tenants.models import Tenant
from pagoda_inference.client import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import AccountReport, PoolReport

STALE_S = 5.0

SUMS = (
    *("active", "cached", "shared", "reservation", "reserved_unused", "running", "waiting"),
    *("hit_tokens", "queried_tokens", "tokens_in", "tokens_out", "queue_wait_s"),
)
"""Numbers of accounts that can be added up."""
COUNTS = ("evictions", "evicted_by", "preemptions", "tier_bytes", "demoted", "promoted")
"""The same by cause, kind or tier."""


def live() -> dict[str, Any]:
    """Everything the page draws, for every engine. JSON types only; blocks, tokens and MiB are all given."""
    names = {str(id): name for id, name in Tenant.objects.values_list("id", "name")}
    names[capacity.PUBLIC] = _("Public")
    return {
        "time": time.time(),
        "version": QuotaVersion.current(),
        "engines": [_engine(address, names) for address in settings.PAGODA_ENGINES],
        "alerts": alerts.current(),
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


def _engine(address: str, names: dict[str, str]) -> dict[str, Any]:
    report = current_report(address)
    if report is None:
        return {"address": address, "reachable": False}
    model = connections.model_of(address)
    total = _total(report.accounts)
    # The engine's own account after the tenants'.
    accounts = sorted(report.accounts, key=lambda account: account.id == capacity.PUBLIC)
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
        "tiers": dict(report.tier_totals),
        "total": report.total,
        "free": report.free,
        "active": total["active"],
        "cached": total["cached"],
        "held": total["held"],
        "adds_up": report.free + total["held"] == report.total,
        "hit_tokens": total["hit_tokens"],
        "queried_tokens": total["queried_tokens"],
        "accounts": [_account(account, names, report) for account in accounts],
        "sum": _named(total, names),
        "history": _history(address),
    }


def _numbers(account: AccountReport) -> dict[str, Any]:
    numbers = {name: getattr(account, name) for name in SUMS}
    numbers |= {name: dict(getattr(account, name)) for name in COUNTS}
    return numbers | {"held": account.active + account.cached}


def _total(accounts: Sequence[AccountReport]) -> dict[str, Any]:
    rows = [_numbers(account) for account in accounts]
    total: dict[str, Any] = {name: sum(row[name] for row in rows) for name in (*SUMS, "held")}
    for name in COUNTS:
        counts: Counter[str] = Counter()
        for row in rows:
            counts.update(row[name])
        total[name] = dict(counts)
    return total


def _named(numbers: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """With the names of who evicted, and the numbers that follow from others."""
    queried = numbers["queried_tokens"]
    return numbers | {
        "evicted_by": {names.get(id, id): count for id, count in numbers["evicted_by"].items()},
        "hit_rate": round(numbers["hit_tokens"] / queried, 4) if queried else None,
        "queue_wait_s": round(numbers["queue_wait_s"], 3),
    }


def _account(account: AccountReport, names: dict[str, str], report: PoolReport) -> dict[str, Any]:
    held = account.active + account.cached
    return _named(_numbers(account), names) | {
        "id": account.id,
        "name": names.get(account.id, account.id),
        "public": account.id == capacity.PUBLIC,
        "held_tokens": held * report.block_size,
        "held_mib": round(held * report.bytes_per_block / capacity.MIB, 2),
        "limit": account.limit,
        "weight": account.weight,
        "tier_limits": dict(account.tier_limits),
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
