"""What the pool reports: one line per account, and the totals, at one moment between steps."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda_inference.kv.accounts import Accounts, Ledger
from pagoda_inference.kv.tiers.counters import TierUsage
from pagoda_inference.protocol import AccountReport
from pagoda_inference.scheduling.workload import Workload


@dataclass(frozen=True, slots=True)
class Report:
    """Blocks: ``free`` plus every account's active and cached are ``total``, exactly."""

    total: int
    free: int
    accounts: list[AccountReport]
    tier_totals: dict[str, int]
    """Size of each tier in bytes."""
    alerts: tuple[str, ...]


def make_report(workload: Workload) -> Report:
    """The state of all accounts now."""
    pool = workload.pool
    tiers = None if workload.transfers is None else workload.transfers.tiers
    return Report(
        total=pool.total,
        free=pool.free_blocks,
        accounts=[
            _account(
                ledger,
                len(workload.running_by_account.of(ledger.id)),
                len(workload.waiting.of(ledger.id)),
                {} if tiers is None else _by_tier(tiers.usage(ledger.id)),
                {} if tiers is None else _limits(ledger, tiers.capacity),
            )
            for ledger in pool.accounts
            if ledger.held or ledger is not pool.accounts.public
        ],
        tier_totals={} if tiers is None else _by_tier(tiers.capacity),
        alerts=_alerts(pool.accounts) + (() if tiers is None else tiers.faults.alerts()),
    )


def _alerts(accounts: Accounts) -> tuple[str, ...]:
    if accounts.scaled >= 1:
        return ()
    return (
        f"The pool has {accounts.total} blocks, fewer than the quotas were made for: all reservations are scaled to "
        f"{accounts.scaled:.0%}. Lower them, or give the engine a larger pool.",
    )


def _by_tier(usage: TierUsage) -> dict[str, int]:
    return {"host": usage.host, "disk": usage.disk}


def _limits(ledger: Ledger, capacity: TierUsage) -> dict[str, int]:
    quotas = {"host": ledger.host_bytes, "disk": ledger.disk_bytes}
    return {
        tier: most if (quota := quotas[tier]) is None else min(quota, most) for tier, most in _by_tier(capacity).items()
    }


def _account(
    ledger: Ledger, running: int, waiting: int, tier_bytes: dict[str, int], tier_limits: dict[str, int]
) -> AccountReport:
    return AccountReport(
        id=ledger.id,
        active=ledger.active,
        cached=ledger.cached,
        shared=ledger.shared,
        reservation=ledger.reservation,
        limit=ledger.limit,
        weight=ledger.weight,
        reserved_unused=max(0, ledger.reservation - ledger.held),
        running=running,
        waiting=waiting,
        hit_tokens=ledger.hit_tokens,
        queried_tokens=ledger.queried_tokens,
        tokens_in=ledger.tokens_in,
        tokens_out=ledger.tokens_out,
        evictions=dict(ledger.evictions),
        evicted_by=dict(ledger.evicted_by),
        preemptions=dict(ledger.preemptions),
        queue_wait_s=ledger.queue_wait_s,
        tier_bytes=tier_bytes,
        tier_limits=tier_limits,
        demoted=dict(ledger.demoted),
        promoted=dict(ledger.promoted),
    )
