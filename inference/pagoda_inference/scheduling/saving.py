"""No request is overtaken for ever: blocks are saved for one that others' requests have passed too often."""

from __future__ import annotations

from pagoda_inference.scheduling.sequence import Request, RequestState
from pagoda_inference.scheduling.workload import Workload

MOST_OVERTAKEN = 64
"""Requests of other accounts that may come before a head of a queue which has less than they have and waits for
blocks."""


class Saving:
    """Counts how often the heads of queues are overtaken, and for whom others are held back."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._saved_for: Request | None = None

    def admitted(self, request: Request) -> None:
        """A request has come: who waits with less than its account has was overtaken once more."""
        accounts = self._workload.pool.accounts
        had = request.ledger.active_excess
        for account in self._workload.waiting.accounts():
            head = self._workload.waiting.of(account)[0]
            if head.match is None or head.is_batch or head.ledger is request.ledger:
                continue
            if accounts.room(head.ledger) >= head.match.needed or self._excess_to_be(head) > had:
                continue
            if head.ledger.limit - head.ledger.active < head.match.needed:
                continue  # it waits for its own account
            head.overtaken += 1
            if head.overtaken >= MOST_OVERTAKEN and self._served() is None:
                self._saved_for = head

    def holds_back(self, account: str) -> bool:
        """Whether requests of the account must wait: it has at least what the one saved for will have."""
        head = self._served()
        if head is None or head.account == account:
            return False
        return self._workload.ledger(account).active_excess >= self._excess_to_be(head)

    def _served(self) -> Request | None:
        """For whom blocks are saved now."""
        head = self._saved_for
        if head is not None and (head.state is not RequestState.WAITING or head.match is None):
            head = self._saved_for = None
        return head

    def _excess_to_be(self, head: Request) -> float:
        assert head.match is not None
        ledger = head.ledger
        return max(0, ledger.active + head.match.needed - ledger.reservation) / ledger.weight
