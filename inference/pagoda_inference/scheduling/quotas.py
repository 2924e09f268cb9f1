"""Quota edits: applied between steps, at once, to running, queued and preempted requests alike."""

from __future__ import annotations

from collections.abc import Iterable

from pagoda_inference.protocol import Account, Error
from pagoda_inference.scheduling.admission import Admission
from pagoda_inference.scheduling.sequence import Request
from pagoda_inference.scheduling.workload import Workload

Ended = list[tuple[Request, Error]]
"""Requests that ended with an edit, and why."""

COPIES_TIMEOUT_S = 2.0
"""How long an edit waits for blocks that are being copied: nobody else can have them before."""

_TENANT_ENDED = Error("unknown_account", "The tenant was deleted or suspended.", {"ended": "tenant"})


def apply_accounts(
    workload: Workload,
    admission: Admission,
    accounts: Iterable[Account],
    version: int,
    pool_blocks: int | None = None,
) -> Ended:
    """Put a full list of quotas in force. Raises AccountsRefused, having changed nothing, where it makes no sense.

    Lowering a limit evicts the account's own cached blocks first, then preempts its youngest requests; a raised
    reservation that is out of reach preempts the youngest of the account with most blocks above its own. Nothing is
    corrupted: who is preempted is computed again, and only who can never run under the new limits ends.
    """
    pool = workload.pool
    ended: Ended = []
    gone = pool.accounts.replace(accounts, version, pool_blocks)
    pool.quotas_changed()
    if workload.transfers is not None and (gone or any(ledger.held > ledger.limit for ledger in pool.accounts)):
        workload.transfers.finish(COPIES_TIMEOUT_S)
    for ledger in gone:
        for request in [*workload.running, *workload.waiting]:
            if request.ledger is ledger:
                workload.remove(request)
                ended.append((request, _TENANT_ENDED))
    pool.purge(*gone)
    for ledger in gone:
        pool.accounts.retire(ledger)
    for ledger in pool.accounts:
        while ledger.active > ledger.limit and (running := workload.running_by_account.of(ledger.id)):
            workload.preempt(running[-1], at_once=True)
        pool.evict_above_limit(ledger)
    preempt_above_total(workload)
    return ended + admission.end_what_never_fits()


def preempt_above_total(workload: Workload) -> None:
    """Reservations are out of reach: the youngest of the account with most active blocks above its own gives way.

    Blocks that are being copied can be had when the copies have ended.
    """
    pool = workload.pool
    if pool.accounts.committed > pool.total and workload.transfers is not None:
        workload.transfers.finish(COPIES_TIMEOUT_S)
    while pool.accounts.committed > pool.total and workload.running:
        victim = max(workload.running, key=lambda request: (request.ledger.active_excess, request.order))
        workload.preempt(victim, at_once=True)
