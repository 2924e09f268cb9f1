"""Whose cached blocks go when somebody takes blocks and none is free."""

from __future__ import annotations

from collections.abc import Callable

from pagoda_inference.kv.accounts import Accounts, Ledger
from pagoda_inference.kv.block import Block


class Eviction:
    """At its own limit an account loses its own least recently used blocks. Else the account of greatest excess among
    those with cached blocks above their reservation does, the taker included.

    ``lose``: makes a cached block free.
    """

    def __init__(self, accounts: Accounts, lose: Callable[[Block], None]) -> None:
        self._accounts = accounts
        self._lose = lose

    def make_free(self, taker: Ledger, count: int, already: int) -> None:
        """Evict ``count`` blocks for ``taker``, which takes ``already`` free ones besides: each from the account of
        greatest excess at that moment.

        Where nobody lends, the taker's own oldest cached block goes: it keeps what it holds.
        """
        while count:
            victim, most = self._lender(taker, already)
            if victim is None:
                victim, most = taker, count
            below = taker.reservation - taker.held - already
            cause = "own_lru" if victim is taker else "reclaimed" if below > 0 else "over_share"
            if cause == "reclaimed":
                most = min(most, below)
            for _ in range(min(count, most)):
                self.evict(victim, cause, taker)
                already += 1
                count -= 1

    def evict(self, victim: Ledger, cause: str, taker: Ledger) -> None:
        """Lose the victim's least recently used cached block."""
        block = next(iter(victim.lru.values()))
        victim.evictions[cause] = victim.evictions.get(cause, 0) + 1
        victim.evicted_by[taker.id] = victim.evicted_by.get(taker.id, 0) + 1
        self._lose(block)

    def _lender(self, taker: Ledger, already: int) -> tuple[Ledger | None, int]:
        """The account of greatest excess that has something to lend, and how many blocks it stays that."""
        best = second = None
        greatest = next_greatest = 0.0
        for ledger in self._accounts:
            cached = len(ledger.lru)
            above = ledger.active + cached - ledger.reservation
            if ledger is taker:
                above += already
            if not cached or above <= 0:
                continue
            excess = above / ledger.weight
            if excess > greatest:
                best, greatest, second, next_greatest = ledger, excess, best, greatest
            elif excess > next_greatest:
                second, next_greatest = ledger, excess
        if best is None:
            return None, 0
        if best is taker:
            return best, len(best.lru)  # what it evicts it takes: its excess stays
        closing = 1 / best.weight + (1 / taker.weight if second is taker else 0.0)
        return best, max(1, min(best.lendable, int((greatest - next_greatest) / closing) + 1))
