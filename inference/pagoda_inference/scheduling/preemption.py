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
from pagoda_inference.scheduling.sequence import Request

QUANTUM = 16
"""Tokens a request may produce after each (re)admission before it can be preempted again: no ping-pong."""


class PreemptionPlanner:
    """Chooses victims among the running for a taker. Changes nothing.

    running: in order, oldest first. by_account: the same by account.
    """

    def __init__(self, pool: Pool, running: list[Request], by_account: RequestsByAccount) -> None:
        self._pool = pool
        self._by_account = by_account
        self._running = running
        self._victims: list[Request] = []
        self._active: dict[str, int] = {}
        self._committed = pool.accounts.committed
        for ledger in pool.accounts:
            if ledger.leaving:
                self._lower(ledger, ledger.leaving)

    @staticmethod
    def is_hopeless(pool: Pool, taker: Request, needed: int, greatest: float, next_greatest: float) -> bool:
        """Whether no other account can have the excess that a victim's needs, without looking at any request.

        ``greatest``, ``next_greatest``: the two greatest active excesses. The taker's own requests are not looked at.
        """
        ledger = taker.ledger
        taken = max(0, ledger.active + needed - ledger.reservation) / ledger.weight
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
                victim = self._batch(taker, needed) or self._of_greatest_excess(taker, needed)
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
        block = self._pool.block
        if len(tables) == 1:
            return sum(1 for id in tables[0].blocks if block(id).references == 1)
        own: dict[int, int] = {}
        for table in tables:
            for id in table.blocks:
                own[id] = own.get(id, 0) + 1
        return sum(1 for id, count in own.items() if block(id).references == count)

    def _own(self, taker: Request, ledger: Ledger) -> Request | None:
        """At its own limit an account can only take from itself: its youngest, batch before all, never its oldest."""
        for request in reversed(self._by_account.of(ledger.id)[1:]):
            if request.order <= taker.order:
                return None
            if self._may_go(request, taker):
                return request
        return None

    def _may_go(self, request: Request, taker: Request) -> bool:
        return (
            request is not taker
            and request.since_admission >= QUANTUM
            and not request.loading
            and request not in self._victims
        )

    def _batch(self, taker: Request, needed: int) -> Request | None:
        batch = [request for request in self._running if request.is_batch and self._may_go(request, taker)]
        batch.sort(key=lambda request: (self._excess(request.ledger), request.order), reverse=True)
        return next((request for request in batch if self._allowed(request, taker, needed)), None)

    def _of_greatest_excess(self, taker: Request, needed: int) -> Request | None:
        oldest = self._running[0]
        for ledger in sorted(self._by_account.ledgers(), key=self._excess, reverse=True):
            for request in reversed(self._by_account.of(ledger.id)):
                if request is taker or request is oldest or request in self._victims:
                    continue
                if ledger is taker.ledger and request.order <= taker.order:
                    break
                if self._may_go(request, taker) and self._allowed(request, taker, needed):
                    return request
                break  # only the youngest of an account is a candidate
        return None

    def _excess(self, ledger: Ledger) -> float:
        return max(0, self._active_of(ledger) - ledger.reservation) / ledger.weight

    def _allowed(self, victim: Request, taker: Request, needed: int) -> bool:
        ledger, taking = victim.ledger, taker.ledger
        active = self._active_of(ledger)
        if active <= ledger.reservation:
            return False
        if ledger is taking:
            return True
        left = active - self._exclusive(victim)
        taken = max(0, self._active_of(taking) + needed - taking.reservation) / taking.weight
        return left >= ledger.reservation and (left - ledger.reservation) / ledger.weight >= taken
