"""Whose blocks are taken when no cached block is left: the exact rules of preemption.

The unit is the request. Batch work goes first, else the youngest request of the account of greatest excess; and only
if after it the victim's account still has at least the excess the taker will have, is not left below its reservation,
and the request has produced at least QUANTUM tokens since it was (re)admitted. A plan is made on paper first: either
it frees enough, or nobody is touched.
"""

from __future__ import annotations

from collections.abc import Iterable

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.pool import Pool
from pagoda_inference.scheduling.sequence import Request

QUANTUM = 16
"""Tokens a request may produce after each (re)admission before it can be preempted again: no ping-pong."""


class PreemptionPlanner:
    """Chooses victims among ``running`` for a taker. Changes nothing."""

    def __init__(self, pool: Pool, running: Iterable[Request]) -> None:
        self._pool = pool
        self._candidates = sorted(running, key=lambda request: request.order, reverse=True)
        self._oldest = self._candidates[-1] if self._candidates else None
        self._active = {ledger.id: ledger.active for ledger in pool.accounts}
        self._committed = pool.accounts.committed

    def plan(self, taker: Request, ledger: Ledger, needed: int) -> list[Request] | None:
        """The requests to preempt so that ``ledger`` can make ``needed`` more blocks active; None if there are none
        such.
        """
        victims: list[Request] = []
        while self._room(ledger) < needed:
            if ledger.limit - self._active[ledger.id] < needed:
                victim = self._own(taker, ledger)
            else:
                victim = self._batch(taker, ledger, needed) or self._of_greatest_excess(taker, ledger, needed)
            if victim is None:
                return None
            self._release(victim)
            victims.append(victim)
        return victims

    def _room(self, ledger: Ledger) -> int:
        return self._pool.accounts.room_if(ledger, self._active[ledger.id], self._committed)

    def _release(self, victim: Request) -> None:
        ledger = self._ledger(victim)
        before = max(self._active[ledger.id], ledger.reservation)
        self._active[ledger.id] -= self._exclusive(victim)
        self._committed -= before - max(self._active[ledger.id], ledger.reservation)
        self._candidates.remove(victim)

    def _ledger(self, request: Request) -> Ledger:
        table = request.sequences[0].table
        assert table is not None
        return table.account

    def _exclusive(self, request: Request) -> int:
        """Blocks that only this request holds: what its preemption gives."""
        own: dict[int, int] = {}
        for sequence in request.sequences:
            if sequence.table is not None:
                for id in sequence.table.blocks:
                    own[id] = own.get(id, 0) + 1
        return sum(1 for id, count in own.items() if self._pool.block(id).references == count)

    def _own(self, taker: Request, ledger: Ledger) -> Request | None:
        """At its own limit an account can only take from itself: its youngest, batch before all, never its oldest."""
        own = [request for request in self._candidates if request.account == ledger.id]
        for request in own[:-1]:
            if request is not taker and request.order > taker.order and request.since_admission >= QUANTUM:
                return request
        return None

    def _batch(self, taker: Request, ledger: Ledger, needed: int) -> Request | None:
        batch = [request for request in self._candidates if request.is_batch and request is not taker]
        batch.sort(key=lambda request: -self._excess(self._ledger(request)))
        return next((request for request in batch if self._allowed(request, ledger, needed)), None)

    def _of_greatest_excess(self, taker: Request, ledger: Ledger, needed: int) -> Request | None:
        for victim_ledger in sorted(self._pool.accounts, key=self._excess, reverse=True):
            for request in self._candidates:
                if request.account != victim_ledger.id or request is taker or request is self._oldest:
                    continue
                if request.account == taker.account and request.order <= taker.order:
                    continue
                if self._allowed(request, ledger, needed):
                    return request
                break  # only the youngest of an account is a candidate
        return None

    def _excess(self, ledger: Ledger) -> float:
        return max(0, self._active[ledger.id] - ledger.reservation) / ledger.weight

    def _allowed(self, victim: Request, taker: Ledger, needed: int) -> bool:
        ledger = self._ledger(victim)
        left = self._active[ledger.id] - self._exclusive(victim)
        if victim.since_admission < QUANTUM or self._active[ledger.id] <= ledger.reservation:
            return False
        if ledger is taker:
            return True
        taken = max(0, self._active[taker.id] + needed - taker.reservation) / taker.weight
        return left >= ledger.reservation and (left - ledger.reservation) / ledger.weight >= taken
