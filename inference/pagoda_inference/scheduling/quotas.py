"""Quota edits: applied between steps, at once, to running, queued and preempted requests alike."""

from __future__ import annotations

from collections.abc import Iterable

from pagoda_inference.protocol import Account, Error
from pagoda_inference.scheduling.admission import Admission
from pagoda_inference.scheduling.sequence import Request
from pagoda_inference.scheduling.workload import RequestRefused, Workload

Ended = list[tuple[Request, Error]]
"""Requests that ended with an edit, and why."""


def apply_accounts(workload: Workload, admission: Admission, accounts: Iterable[Account], version: int) -> Ended:
    """Put a full list of quotas in force. Raises AccountsRefused, having changed nothing, where it makes no sense.

    Lowering a limit evicts the account's own cached blocks first, then preempts its youngest requests; a raised
    reservation that is out of reach preempts the youngest of the account with most blocks above its own. Nothing is
    corrupted: who is preempted is computed again, and only who can never run under the new limits ends.
    """
    pool = workload.pool
    ended: Ended = []
    for ledger in pool.accounts.replace(accounts, version):
        for request in [*workload.running, *workload.waiting]:
            if request.account == ledger.id:
                workload.remove(request)
                ended.append((request, Error("unknown_account", "The tenant was deleted or suspended.")))
        pool.purge(ledger)
        pool.accounts.remove(ledger)
        workload.counters.forget(ledger.id)
    for ledger in pool.accounts:
        while ledger.active > ledger.limit:
            workload.preempt(max(workload.running_of(ledger.id), key=lambda request: request.order))
        pool.evict_above_limit(ledger)
    while pool.accounts.committed > pool.total:
        workload.preempt(max(workload.running, key=lambda request: (_active_excess(workload, request), request.order)))
    for request in list(workload.waiting):
        try:
            admission.refuse_if_never(request)
        except RequestRefused as refusal:
            workload.remove(request)
            ended.append((request, refusal.error))
    return ended


def _active_excess(workload: Workload, request: Request) -> float:
    ledger = workload.ledger(request.account)
    return max(0, ledger.active - ledger.reservation) / ledger.weight
