"""Whose blocks are taken when no cached block is left: the exact rules of preemption.

The unit is the request. Batch work goes first, else the youngest request of the account of greatest excess; and only
if after it the victim's account still has at least the excess the taker will have, is not left below its reservation,
and the request has produced at least QUANTUM tokens since it was (re)admitted. A plan is made on paper first: either
it frees enough, or nobody is touched. Blocks that preempted requests are about to leave count as free on paper.
"""

from __future__ import annotations

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.pool import Pool
from pagoda_inference.scheduling.queues import RequestsByAccount
from pagoda_inference.scheduling.sequence import Request, RequestState

QUANTUM = 16
"""Tokens a request may produce after each (re)admission before it can be preempted again: no ping-pong."""
PLAN_AGAIN = 8
"""Most steps until preemption is planned again for a request that found no victims."""


class PreemptionPlanner:
    """Chooses victims among the running for a taker. Changes nothing.

    running: in order, oldest first. by_account: the same by account. batch: those of them that are batch work.
    any_leaving: preempted requests are about to leave blocks.
    """

    def __init__(
        self,
        pool: Pool,
        running: list[Request],
        by_account: RequestsByAccount,
        batch: list[Request],
        *,
        any_leaving: bool,
    ) -> None:
        self._pool = pool
        self._by_account = by_account
        self._running = running
        self._batch_running = batch
        self._victims: list[Request] = []
        self.again_in = PLAN_AGAIN
        """Steps after which it is worth to plan again, when no plan was found: when the first of those that are
        protected has its quantum.
        """
        self._active: dict[str, int] = {}
        self._committed = pool.accounts.committed
        if any_leaving:
            for ledger in pool.accounts:
                if ledger.leaving:
                    self._lower(ledger, ledger.leaving)

    @staticmethod
    def is_hopeless(pool: Pool, taker: Request, needed: int, greatest: float, next_greatest: float) -> bool:
        """Whether no other account can have the excess that a victim's needs, without looking at any request.

        ``greatest``, ``next_greatest``: the two greatest active excesses. The taker's own requests are not looked at.
        """
        ledger = taker.ledger
        taken = ledger.active_excess_with(needed)
        others = next_greatest if ledger.active_excess == greatest else greatest
        return others < taken

    def plan(self, taker: Request, needed: int) -> list[Request] | None:
        """The requests to preempt so that the taker's account can make ``needed`` more blocks active; None if there
        are none such.
        """
        ledger = taker.ledger
        while self._room(ledger) < needed:
            if ledger.limit - self._active_of(ledger) < needed:
                victim = self._own(taker, ledger)
            else:
                losers = self._losers(taker, needed)
                victim = self._batch(taker, needed, losers) or self._of_greatest_excess(taker, needed, losers)
            if victim is None:
                return None
            self._lower(victim.ledger, self._exclusive(victim))
            self._victims.append(victim)
        return self._victims

    def _active_of(self, ledger: Ledger) -> int:
        return self._active.get(ledger.id, ledger.active) if not ledger.retired else ledger.active

    def _room(self, ledger: Ledger) -> int:
        return self._pool.accounts.room_if(ledger, self._active_of(ledger), self._committed)

    def _lower(self, ledger: Ledger, blocks: int) -> None:
        active = self._active_of(ledger)
        before = max(active, ledger.reservation)
        if not ledger.retired:
            self._active[ledger.id] = active - blocks
        self._committed -= before - max(active - blocks, ledger.reservation)

    def _exclusive(self, request: Request) -> int:
        """Blocks that only this request holds: what its preemption gives."""
        tables = [sequence.table for sequence in request.sequences if sequence.table is not None]
        if len(tables) == 1:
            return self._pool.exclusive(tables[0])
        own: dict[int, int] = {}
        for table in tables:
            for id in table.blocks:
                own[id] = own.get(id, 0) + 1
        return sum(1 for id, count in own.items() if self._pool.block(id).references == count)

    def _own(self, taker: Request, ledger: Ledger) -> Request | None:
        """At its own limit an account can only take from itself: its youngest, batch before all, never its oldest."""
        for request in reversed(self._by_account.of(ledger.id)[1:]):
            if not gives_way(request, taker):
                return None
            if self._may_go(request, taker):
                return request
        return None

    def _may_go(self, request: Request, taker: Request) -> bool:
        if request is taker or request.loading or request in self._victims:
            return False
        missing = QUANTUM - request.since_admission
        if missing > 0:
            self.again_in = min(self.again_in, missing)
        return missing <= 0

    def _losers(self, taker: Request, needed: int) -> dict[str, float]:
        """The excess of the accounts that could lose a request of a single block: what is quick to see of
        ``_allowed``.
        """
        taken = self._taken(taker, needed)
        losers = {}
        for ledger in self._by_account.ledgers():
            above = self._active.get(ledger.id, ledger.active) - ledger.reservation
            if above > 0 and (ledger is taker.ledger or (above - 1) / ledger.weight >= taken):
                losers[ledger.id] = above / ledger.weight
        return losers

    def _batch(self, taker: Request, needed: int, losers: dict[str, float]) -> Request | None:
        batch = [request for request in self._batch_running if request.account in losers]
        batch = [request for request in batch if self._may_go(request, taker)]
        batch.sort(key=lambda request: (losers[request.account], request.order), reverse=True)
        return next((request for request in batch if self._allowed(request, taker, needed)), None)

    def _of_greatest_excess(self, taker: Request, needed: int, losers: dict[str, float]) -> Request | None:
        oldest = self._running[0] if self._running else None
        for account in sorted(losers, key=losers.__getitem__, reverse=True):
            for request in reversed(self._by_account.of(account)):
                if request is taker or request is oldest or request in self._victims:
                    continue
                if request.ledger is taker.ledger and not gives_way(request, taker):
                    break
                if not self._may_go(request, taker):
                    continue
                if self._allowed(request, taker, needed):
                    return request
                break  # the youngest that may go is the account's candidate
        return None

    def _allowed(self, victim: Request, taker: Request, needed: int) -> bool:
        ledger = victim.ledger
        if ledger is taker.ledger:
            return True
        above = self._active_of(ledger) - ledger.reservation
        most_given = min(above, above - self._taken(taker, needed) * ledger.weight)
        least, most = _exclusive_bounds(victim)
        if most <= most_given:
            return True
        return least <= most_given and self._exclusive(victim) <= most_given

    def _taken(self, taker: Request, needed: int) -> float:
        """The excess that the taker's account will have."""
        ledger = taker.ledger
        return max(0, self._active_of(ledger) + needed - ledger.reservation) / ledger.weight


def gives_way(request: Request, taker: Request) -> bool:
    """Whether a request may lose its blocks to another of its own account: to an older one that runs, and to one of a
    better class. An older one that waits gains nothing that would be worth computing both again.
    """
    if taker.state is RequestState.RUNNING:
        return request.order > taker.order
    return request.order[0] > taker.order[0]


def _exclusive_bounds(request: Request) -> tuple[int, int]:
    """Between what numbers ``_exclusive`` lies: only findable blocks can have other holders, but for forks'."""
    tables = [sequence.table for sequence in request.sequences if sequence.table is not None]
    if len(tables) != 1 or tables[0].forked:
        return 0, sum(len(table.blocks) for table in tables)
    return len(tables[0].blocks) - tables[0].findable, len(tables[0].blocks)
