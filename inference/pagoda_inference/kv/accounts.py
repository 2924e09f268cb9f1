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

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from math import inf

from pagoda_inference.kv.block import Block
from pagoda_inference.kv.prefix_index import PUBLIC
from pagoda_inference.protocol import Account, Error


class AccountsRefused(Exception):
    """A list of accounts that the pool cannot honour. Nothing was changed. ``error`` has the numbers."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


_numbers = count()


class Ledger:
    """One account: its quota, what it holds, and what happened to it since the engine started (blocks, tokens)."""

    __slots__ = (
        "active",
        "demoted",
        "disk_bytes",
        "evicted_by",
        "evictions",
        "heap_key",
        "hit_tokens",
        "host_bytes",
        "id",
        "leaving",
        "limit",
        "longer",
        "lru",
        "number",
        "preemptions",
        "produced",
        "promoted",
        "queried_tokens",
        "queue_wait_s",
        "reservation",
        "retired",
        "rows",
        "service",
        "shared",
        "sharing_changes",
        "tokens_in",
        "tokens_out",
        "unsaved",
        "weight",
    )

    def __init__(self, id: str, *, reservation: int = 0, limit: int = 0, weight: float = 1.0) -> None:
        self.id = id
        self.reservation = reservation
        self.limit = limit
        self.weight = weight
        self.host_bytes: int | None = None
        self.disk_bytes: int | None = None
        self.retired = False
        """Deleted: what copies still hold is all that is left of it."""
        self.active = 0
        self.longer = 0
        """How often a key appeared that one of its requests awaited: see ``PrefixIndex.awaited``."""
        self.shared = 0
        """Active blocks that more than one table or copy holds."""
        self.sharing_changes = 0
        """How often one of its blocks got a second holder or lost it."""
        self.leaving = 0
        """Active blocks of preempted requests that are free once they are copied to the host."""
        self.lru: OrderedDict[int, Block] = OrderedDict()
        """Cached blocks by id, least recently used first."""
        self.unsaved: OrderedDict[int, Block] = OrderedDict()
        """Those of them that no tier below has, in the same order; kept where there are tiers."""
        self.number = next(_numbers)
        """Order of creation: breaks ties, and never comes again."""
        self.heap_key = 0.0
        """Its valid place in ``Eviction``'s heap."""
        self.rows = 0
        """Sequences of its running requests."""
        self.produced = 0
        """Tokens of the present step, not yet in ``tokens_out`` and ``service``."""
        self.service = 0.0
        """Virtual Token Counter: priced tokens per weight. See scheduling.fairness."""
        self.hit_tokens = 0
        self.queried_tokens = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.queue_wait_s = 0.0
        self.evictions: Counter[str] = Counter()
        self.evicted_by: Counter[str] = Counter()
        self.preemptions: Counter[str] = Counter()
        self.demoted: Counter[str] = Counter()
        self.promoted: Counter[str] = Counter()

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
    def active_excess(self) -> float:
        """The same of active blocks alone."""
        return self.active_excess_with(0)

    def active_excess_with(self, blocks: int) -> float:
        """The active excess with so many blocks more."""
        return max(0, self.active + blocks - self.reservation) / self.weight

    @property
    def lendable(self) -> int:
        """Cached blocks above the reservation: what others may evict."""
        return max(0, min(len(self.lru), self.held - self.reservation))


class Accounts:
    """All ledgers of a pool of ``total`` blocks.

    Until the first ``replace`` every name is served under an account of its own (reservation 0, limit the pool, weight
    1); with ``required`` nobody is, so that a restarted engine admits nothing before the platform has spoken.

    ``public`` is the account of published prefixes: its reservation and its limit are the blocks it holds.
    """

    def __init__(self, total: int, *, required: bool = False) -> None:
        self.total = total
        self.version = 0
        self.committed = 0
        """sum(max(active, reservation)) over all ledgers; never above ``total`` between steps."""
        self.reserved = 0
        """sum(reservation) over all ledgers."""
        self.scaled = 1.0
        """What reservations were multiplied with because the pool shrank."""
        self.public = Ledger(PUBLIC)
        self.public.host_bytes = self.public.disk_bytes = 0
        self._implicit = not required
        self._ledgers: dict[str, Ledger] = {PUBLIC: self.public}
        self._retired: list[Ledger] = []

    def __iter__(self) -> Iterator[Ledger]:
        yield from self._ledgers.values()
        yield from self._retired

    def __len__(self) -> int:
        return len(self._ledgers) + len(self._retired)

    def find(self, id: str) -> Ledger | None:
        """The ledger of an account, made on demand while accounts are implicit; None for an unknown one."""
        ledger = self._ledgers.get(id)
        if ledger is None and self._implicit:
            ledger = self._ledgers[id] = Ledger(id, limit=self.total)
        return ledger

    # --- how much there is --------------------------------------------------------------------------------------------

    def effective_limit(self, ledger: Ledger) -> int:
        """Most blocks the account can ever have active: its limit, or the pool less everybody else's reservations."""
        return min(ledger.limit, self.total - self.reserved + ledger.reservation)

    def room(self, ledger: Ledger) -> int:
        """Blocks the account can make active right now without anybody's preemption."""
        uncommitted = self.total - self.committed
        if ledger.active < ledger.reservation:
            uncommitted += ledger.reservation - ledger.active
        limit = ledger.limit - ledger.active
        return limit if limit < uncommitted else uncommitted

    def room_if(self, ledger: Ledger, active: int, committed: int) -> int:
        """The same, supposing that ``active`` of the account's blocks and ``committed`` in all were the figures."""
        uncommitted = self.total - committed + max(0, ledger.reservation - active)
        return min(ledger.limit - active, uncommitted)

    def activated(self, ledger: Ledger, blocks: int = 1) -> None:
        """So many more blocks of the account are active."""
        above = ledger.active + blocks - max(ledger.active, ledger.reservation)
        ledger.active += blocks
        if above > 0:
            self.committed += above

    def deactivated(self, ledger: Ledger) -> None:
        """One block of the account is no longer active."""
        if ledger.active > ledger.reservation:
            self.committed -= 1
        ledger.active -= 1

    # --- who there is -------------------------------------------------------------------------------------------------

    def replace(self, accounts: Iterable[Account], version: int, pool_blocks: int | None = None) -> list[Ledger]:
        """Put a new full list of quotas in force and return the ledgers that are not in it any more.

        Only the numbers change here: the scheduler preempts and the pool evicts what no longer fits. The ledgers
        returned are ``retire``d by the caller. Raises AccountsRefused, having changed nothing, where the list makes no
        sense. ``pool_blocks``: the pool it was made for; see ``scaled``.
        """
        accounts = list(accounts)
        wanted = {account.id: account for account in accounts}
        if len(wanted) < len(accounts):
            twice = next(account.id for account in accounts if wanted[account.id] is not account)
            raise _refused(f"Account {twice} is in the list twice: give each account once.")
        scaled = self._validate(wanted, pool_blocks)
        for id, account in wanted.items():
            ledger = self._ledgers.get(id)
            if ledger is None:
                ledger = self._ledgers[id] = Ledger(id)
            ledger.reservation = int(account.reservation * scaled)
            ledger.limit = self.total if account.limit is None else min(account.limit, self.total)
            ledger.weight = account.weight
            ledger.host_bytes, ledger.disk_bytes = account.host_bytes, account.disk_bytes
        gone = [ledger for id, ledger in self._ledgers.items() if id not in wanted and ledger is not self.public]
        for ledger in gone:
            ledger.reservation = 0
        self._implicit = False
        self.version = version
        self.scaled = scaled
        self._recount()
        return gone

    def retire(self, ledger: Ledger) -> None:
        """A deleted account: unknown from now on, and forgotten with its last block (copies may still hold some)."""
        ledger.retired = True
        del self._ledgers[ledger.id]
        if ledger.held:
            self._retired.append(ledger)

    def released(self, ledger: Ledger) -> None:
        """A retired account gave a block back."""
        if not ledger.held and ledger in self._retired:
            self._retired.remove(ledger)

    def resize_public(self, blocks: int) -> None:
        """The public account's reservation and limit follow its blocks."""
        public = self.public
        self.committed += max(public.active, blocks) - max(public.active, public.reservation)
        self.reserved += blocks - public.reservation
        public.reservation = public.limit = blocks

    def _recount(self) -> None:
        self.reserved = sum(ledger.reservation for ledger in self)
        self.committed = sum(max(ledger.active, ledger.reservation) for ledger in self)

    def _validate(self, wanted: Mapping[str, Account], pool_blocks: int | None) -> float:
        """The factor for all reservations: below 1 where the pool is smaller than the one they were made for."""
        for account in wanted.values():
            if account.id == PUBLIC:
                raise _refused(f"Account {PUBLIC}: the engine keeps this one itself. Choose another id.")
            if account.reservation < 0:
                raise _refused(f"Account {account.id}: the reservation must be at least 0, not {account.reservation}.")
            if not 0 < account.weight < inf:
                raise _refused(f"Account {account.id}: the weight must be a number above 0, not {account.weight}.")
            if account.limit is not None and account.limit < 0:
                raise _refused(f"Account {account.id}: the limit must be at least 0, not {account.limit}.")
            if min(account.host_bytes or 0, account.disk_bytes or 0) < 0:
                raise _refused(f"Account {account.id}: the quotas in bytes must be at least 0.")
            if account.limit is not None and account.reservation > account.limit:
                raise _refused(
                    f"Account {account.id}: the reservation ({account.reservation} blocks) exceeds the limit "
                    f"({account.limit} blocks). Lower the one or raise the other.",
                    reservation=account.reservation,
                    limit=account.limit,
                )
        reserved = sum(account.reservation for account in wanted.values())
        total = self.total - self.public.reservation
        if reserved <= total:
            return 1.0
        if pool_blocks is not None and self.total < pool_blocks:
            return total / reserved
        published = f" ({self.public.reservation} more are published)" if self.public.reservation else ""
        raise _refused(
            f"The reservations add up to {reserved} blocks and the pool has {total}{published}: "
            f"lower them by {reserved - total}.",
            reserved=reserved,
            total=total,
        )


def _refused(message: str, **details: int | str) -> AccountsRefused:
    return AccountsRefused(Error("invalid_request", message, details))
