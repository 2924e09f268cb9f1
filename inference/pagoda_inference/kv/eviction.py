"""Whose cached blocks go when somebody takes blocks and none is free."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from pagoda_inference.kv.accounts import Accounts, Ledger
from pagoda_inference.kv.block import Block

_STALE = 4
"""The heap is made anew when it has so many times more items than there are accounts."""


class Eviction:
    """At its own limit an account loses its own least recently used blocks. Else the account of greatest excess among
    those with cached blocks above their reservation does, the taker included.

    The accounts lie in a heap by excess. It is put right lazily: an excess that fell is noticed when it comes to the
    top, one that rose is pushed again by ``rose``.

    ``lose``: makes a cached block free.
    """

    def __init__(self, accounts: Accounts, lose: Callable[[Block], None]) -> None:
        self._accounts = accounts
        self._lose = lose
        self._heap: list[tuple[float, int]] = []
        self._ledgers: dict[int, Ledger] = {}
        """Ledgers in the heap, by number."""

    def make_free(self, taker: Ledger, count: int, already: int) -> None:
        """Evict ``count`` blocks for ``taker``, which takes ``already`` free ones besides: each from the account of
        greatest excess at that moment.

        Where nobody lends, the taker's own oldest cached block goes: it keeps what it holds.
        """
        held, reservation, lender = taker.active + len(taker.lru), taker.reservation, self._lender
        for taken in range(already, already + count):
            victim = lender(taker, taken)
            if victim is None or victim is taker:
                self.evict(taker, "own_lru", taker)
                held -= 1
            else:
                self.evict(victim, "reclaimed" if held + taken < reservation else "over_share", taker)

    def evict(self, victim: Ledger, cause: str, taker: Ledger) -> None:
        """Lose the victim's least recently used cached block."""
        block = next(iter(victim.lru.values()))
        victim.evictions[cause] += 1
        victim.evicted_by[taker.id] += 1
        self._lose(block)

    def rose(self, ledger: Ledger) -> None:
        """A ledger with cached blocks holds more, or one that holds something has cached blocks again."""
        above = ledger.active + len(ledger.lru) - ledger.reservation
        if above <= 0:
            return
        ledger.heap_key = -above / ledger.weight
        self._ledgers[ledger.number] = ledger
        heappush(self._heap, (ledger.heap_key, ledger.number))
        if len(self._heap) > _STALE * len(self._accounts) + 64:
            self.renew()

    def renew(self) -> None:
        """Reservations or weights have changed, or the heap is mostly stale."""
        self._ledgers = {ledger.number: ledger for ledger in self._accounts if ledger.lru}
        self._heap = []
        for ledger in self._ledgers.values():
            ledger.heap_key = -ledger.excess
            self._heap.append((ledger.heap_key, ledger.number))
        heapify(self._heap)

    def _lender(self, taker: Ledger, taken: int) -> Ledger | None:
        """The account of greatest excess that has something to lend; ``taken``: what the taker holds more by now."""
        heap = self._heap
        best: Ledger | None = None
        while heap:
            key, number = heap[0]
            ledger = self._ledgers[number]
            above = ledger.active + len(ledger.lru) - ledger.reservation
            if key != ledger.heap_key or above <= 0 or not ledger.lru:
                heappop(heap)
                continue
            current = -above / ledger.weight
            if current > key:
                ledger.heap_key = current
                heapreplace(heap, (current, number))
                continue
            best = ledger
            break
        if taken and taker.lru and taker is not best:
            above = taker.held + taken - taker.reservation
            if above > 0 and (best is None or above / taker.weight > best.excess):
                return taker
        return best
