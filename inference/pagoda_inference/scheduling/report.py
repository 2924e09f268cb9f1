"""What the pool reports: one line per account, and the totals, at one moment between steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.protocol import AccountReport
from pagoda_inference.scheduling.workload import Workload


@dataclass(frozen=True, slots=True)
class Report:
    """Blocks: ``free`` plus every account's active and cached are ``total``, exactly."""

    total: int
    free: int
    accounts: list[AccountReport]


def make_report(workload: Workload) -> Report:
    """The state of all accounts now."""
    pool = workload.pool
    running = Counter(request.account for request in workload.running)
    shared = Counter(
        block.account.id for block in pool.known_blocks() if block.account is not None and block.references > 1
    )
    return Report(
        total=pool.total,
        free=pool.free_blocks,
        accounts=[
            _account(ledger, shared[ledger.id], running[ledger.id], len(workload.waiting.of(ledger.id)))
            for ledger in pool.accounts
        ],
    )


def _account(ledger: Ledger, shared: int, running: int, waiting: int) -> AccountReport:
    return AccountReport(
        id=ledger.id,
        active=ledger.active,
        cached=ledger.cached,
        shared=shared,
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
    )
