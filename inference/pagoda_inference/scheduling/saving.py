"""Blocks go first to whom they are owed: to the account that will have least of those whose requests wait for them."""

from __future__ import annotations

from pagoda_inference.scheduling.sequence import Request, RequestState
from pagoda_inference.scheduling.workload import Workload

MOST_OVERTAKEN = 64
"""Requests of other accounts that may come before a head of a queue which has less than they have and waits for
blocks."""
REMEMBERED = 4
"""Steps for which a head that could not have its blocks is thought to wait for them still."""


class Saving:
    """Holds requests back for the sake of others.

    While a head of a queue waits for blocks, free ones are left to it by those whose accounts would have more than its
    own: they would only be taken back by preemption. And no head is overtaken for ever: after MOST_OVERTAKEN nobody
    with as much comes before it, even if it could not be served yet.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._poorest: Request | None = None
        self._seen = 0
        self._saved_for: Request | None = None

    def waits(self, head: Request, number: int) -> None:
        """In step ``number`` the head of a queue could not have its blocks."""
        if not _is_owed(head):
            return
        poorest = self._owed(number)
        if poorest is None or poorest is head or self._excess_to_be(head) < self._excess_to_be(poorest):
            self._poorest, self._seen = head, number

    def admitted(self, request: Request) -> None:
        """A request has come: who waits with less than its account has was overtaken once more."""
        accounts = self._workload.pool.accounts
        had = request.ledger.active_excess
        for account in self._workload.waiting.accounts():
            head = self._workload.waiting.of(account)[0]
            if head.ledger is request.ledger or head.match is None or not _is_owed(head):
                continue
            missing = head.match.needed + self._workload.headroom(head.ledger, head.match.needed)
            if accounts.room(head.ledger) >= missing or self._excess_to_be(head) > had:
                continue
            head.overtaken += 1
            if head.overtaken >= MOST_OVERTAKEN and self._saved() is None:
                self._saved_for = head

    def holds_back(self, head: Request, number: int) -> bool:
        """Whether the account of ``head`` must leave what is free to another in step ``number``."""
        saved = self._saved()
        apart = saved is not None and saved.account != head.account
        if saved is not None and apart and head.ledger.active_excess >= self._excess_to_be(saved):
            return True
        poorest = self._owed(number)
        if poorest is None or poorest.account == head.account or poorest.match is None:
            return False
        accounts = self._workload.pool.accounts
        needed = self._workload.pool.blocks_for(len(head.sequences[0].tokens)) + 1
        if head.match is not None:
            needed = head.match.needed
        if needed + poorest.match.needed <= accounts.total - accounts.committed:
            return False  # there is enough for both
        return head.ledger.active_excess_with(needed) > self._excess_to_be(poorest)

    def _owed(self, number: int) -> Request | None:
        """The head that waits for blocks and whose account will have least."""
        head = self._poorest
        if head is None or number - self._seen > REMEMBERED or not _waits(head):
            return None
        return head

    def _saved(self) -> Request | None:
        """For whom blocks are saved whatever it takes."""
        if self._saved_for is not None and not _waits(self._saved_for):
            self._saved_for = None
        return self._saved_for

    def _excess_to_be(self, head: Request) -> float:
        assert head.match is not None
        return head.ledger.active_excess_with(head.match.needed)


def _is_owed(head: Request) -> bool:
    """Whether others keep its blocks from it: not batch work, which takes what they leave, nor one at its own limit."""
    match, ledger = head.match, head.ledger
    return match is not None and not head.is_batch and ledger.limit - ledger.active >= match.needed


def _waits(head: Request) -> bool:
    return head.state is RequestState.WAITING and head.match is not None
