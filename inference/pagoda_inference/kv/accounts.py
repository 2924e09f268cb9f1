"""Accounts: what cgroups are to memory, ledgers are to KV blocks.

Every active or cached block is charged to exactly one ledger, so ``free + sum(held) == total`` at every step.

One identity makes the rules cheap. A reservation is *reachable* when free blocks and others' cached blocks above their
reservations cover every unmet reservation::

    free + sum(min(cached, max(0, held - reservation))) >= sum(max(0, reservation - held))

With ``free = total - sum(held)`` each account contributes ``-max(active, reservation)`` to left minus right, so the
condition is ``sum(max(active, reservation)) <= total``. ``Accounts.committed`` keeps that sum, and whether an account
may take n more blocks is one comparison instead of a walk over everybody's cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from pagoda_inference.kv.block import Block
from pagoda_inference.protocol import Account, Error


class AccountsRefused(Exception):
    """A list of accounts that the pool cannot honour. Nothing was changed. ``error`` has the numbers."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class Ledger:
    """One account: its quota, what it holds, and what happened to it since the engine started (blocks, tokens)."""

    __slots__ = (
        "active",
        "evicted_by",
        "evictions",
        "hit_tokens",
        "id",
        "limit",
        "lru",
        "preemptions",
        "queried_tokens",
        "queue_wait_s",
        "reservation",
        "tokens_in",
        "tokens_out",
        "weight",
    )

    def __init__(self, id: str, *, reservation: int, limit: int, weight: float) -> None:
        self.id = id
        self.reservation = reservation
        self.limit = limit
        self.weight = weight
        self.active = 0
        self.lru: OrderedDict[int, Block] = OrderedDict()
        """Cached blocks by id, least recently used first."""
        self.hit_tokens = 0
        self.queried_tokens = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.queue_wait_s = 0.0
        self.evictions: dict[str, int] = {}
        self.evicted_by: dict[str, int] = {}
        self.preemptions: dict[str, int] = {}

    @property
    def cached(self) -> int:
        return len(self.lru)

    @property
    def held(self) -> int:
        return self.active + len(self.lru)

    @property
    def excess(self) -> float:
        """Blocks held above the reservation, per weight."""
        return max(0, self.held - self.reservation) / self.weight

    @property
    def lendable(self) -> int:
        """Cached blocks above the reservation: what others may evict."""
        return max(0, min(len(self.lru), self.held - self.reservation))


class Accounts:
    """All ledgers of a pool of ``total`` blocks.

    Until the first ``replace`` every name is served under an account of its own (reservation 0, limit the pool, weight
    1); with ``required`` nobody is, so that a restarted engine admits nothing before the platform has spoken.
    """

    def __init__(self, total: int, *, required: bool = False) -> None:
        self.total = total
        self.version = 0
        self.committed = 0
        """sum(max(active, reservation)) over all ledgers; never above ``total`` between steps."""
        self._implicit = not required
        self._ledgers: dict[str, Ledger] = {}

    def __iter__(self) -> Iterator[Ledger]:
        return iter(self._ledgers.values())

    def __len__(self) -> int:
        return len(self._ledgers)

    def find(self, id: str) -> Ledger | None:
        """The ledger of an account, made on demand while accounts are implicit; None for an unknown one."""
        ledger = self._ledgers.get(id)
        if ledger is None and self._implicit:
            ledger = self._ledgers[id] = Ledger(id, reservation=0, limit=self.total, weight=1.0)
        return ledger

    def effective_limit(self, ledger: Ledger) -> int:
        """Most blocks the account can ever have active: its limit, or the pool less everybody else's reservations."""
        reserved_by_others = sum(other.reservation for other in self._ledgers.values()) - ledger.reservation
        return min(ledger.limit, self.total - reserved_by_others)

    def room(self, ledger: Ledger) -> int:
        """Blocks the account can make active right now without anybody's preemption."""
        return self.room_if(ledger, ledger.active, self.committed)

    def room_if(self, ledger: Ledger, active: int, committed: int) -> int:
        """The same, supposing that ``active`` of the account's blocks and ``committed`` in all were the figures."""
        uncommitted = self.total - committed + max(0, ledger.reservation - active)
        return min(ledger.limit - active, uncommitted)

    def activated(self, ledger: Ledger) -> None:
        """One more block of the account is active."""
        ledger.active += 1
        if ledger.active > ledger.reservation:
            self.committed += 1

    def deactivated(self, ledger: Ledger) -> None:
        """One block of the account is no longer active."""
        if ledger.active > ledger.reservation:
            self.committed -= 1
        ledger.active -= 1

    def replace(self, accounts: Iterable[Account], version: int) -> list[Ledger]:
        """Put a new full list of quotas in force and return the ledgers that are not in it any more.

        Only the numbers change here: the scheduler preempts and the pool evicts what no longer fits. The ledgers
        returned stay until ``remove``. Raises AccountsRefused, having changed nothing, where the list makes no sense.
        """
        wanted = {account.id: account for account in accounts}
        self._validate(wanted)
        for id, account in wanted.items():
            limit = self.total if account.limit is None else min(account.limit, self.total)
            ledger = self._ledgers.get(id)
            if ledger is None:
                ledger = Ledger(id, reservation=account.reservation, limit=limit, weight=account.weight)
                self._ledgers[id] = ledger
            else:
                ledger.reservation, ledger.limit, ledger.weight = account.reservation, limit, account.weight
        gone = [ledger for id, ledger in self._ledgers.items() if id not in wanted]
        for ledger in gone:
            ledger.reservation = 0
        self._implicit = False
        self.version = version
        self.committed = sum(max(ledger.active, ledger.reservation) for ledger in self._ledgers.values())
        return gone

    def remove(self, ledger: Ledger) -> None:
        """Forget an account that holds nothing any more."""
        if ledger.held:
            raise ValueError(f"account {ledger.id} still holds {ledger.held} blocks")
        self.committed -= ledger.reservation
        del self._ledgers[ledger.id]

    def _validate(self, wanted: dict[str, Account]) -> None:
        for account in wanted.values():
            if account.reservation < 0 or not account.weight > 0:
                raise AccountsRefused(
                    Error(
                        "invalid_request",
                        f"Account {account.id}: the reservation must be at least 0 and the weight above 0.",
                    )
                )
            if account.limit is not None and account.reservation > account.limit:
                raise AccountsRefused(
                    Error(
                        "invalid_request",
                        f"Account {account.id}: the reservation ({account.reservation} blocks) exceeds the limit "
                        f"({account.limit} blocks). Lower the one or raise the other.",
                        {"reservation": account.reservation, "limit": account.limit},
                    )
                )
        reserved = sum(account.reservation for account in wanted.values())
        if reserved > self.total:
            raise AccountsRefused(
                Error(
                    "invalid_request",
                    f"The reservations add up to {reserved} blocks and the pool has {self.total}: "
                    f"lower them by {reserved - self.total}.",
                    {"reserved": reserved, "total": self.total},
                )
            )
