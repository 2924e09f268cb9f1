"""The room of one tier: who has how many bytes, who must give way, and whose copy is the oldest."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagoda_inference.kv.entry import Entry


@dataclass(frozen=True, slots=True)
class TierQuota:
    """What an account may keep in the tiers, in bytes. None: whatever the tier has. ``weight`` is above 0."""

    host_bytes: int | None = None
    disk_bytes: int | None = None
    weight: float = 1.0


class Copy:
    """One block's KV in a tier. ``live`` until it was evicted or forgotten; not evicted while there are ``pins``.

    used: grows with every use of any copy.
    """

    __slots__ = ("account", "entry", "live", "pins", "used")

    def __init__(self, account: str, entry: Entry | None) -> None:
        self.account = account
        self.entry = entry
        self.pins = 0
        self.used = 0
        self.live = False


class Share:
    """One account's part of a tier."""

    __slots__ = ("bytes", "copies", "evictable", "limit", "weight")

    def __init__(self, limit: int | None, weight: float) -> None:
        self.limit = limit
        self.weight = weight
        self.bytes = 0
        """Of its copies and of its swapped requests."""
        self.copies: dict[Copy, None] = {}
        """In the order they came, so that the same things happen in the same order."""
        self.evictable: OrderedDict[Copy, None] = OrderedDict()
        """Copies that nothing pins, least recently used first."""

    @property
    def over(self) -> int:
        """Bytes above its quota."""
        return 0 if self.limit is None else max(0, self.bytes - self.limit)


class Space:
    """``capacity`` bytes shared by accounts, filled with copies of ``copy_bytes`` each.

    Until the first ``set_limits`` every account is known, without a quota. Nothing here touches the copies' data: who
    calls ``make_room`` or ``enforce`` takes care of what was evicted, which is not in the space any more.
    """

    def __init__(self, capacity: int, copy_bytes: int) -> None:
        self.capacity = capacity
        self.copy_bytes = copy_bytes
        self.bytes = 0
        self._implicit = True
        self._shares: dict[str, Share] = {}
        self._evictable = 0
        self._uses = 0

    def bytes_of(self, account: str) -> int:
        share = self._shares.get(account)
        return share.bytes if share else 0

    def accepts(self, account: str) -> bool:
        """Whether the account may ever have a copy here."""
        share = self._share(account)
        limit = None if share is None else share.limit
        return share is not None and self.capacity >= self.copy_bytes and (limit is None or limit >= self.copy_bytes)

    def copies_of(self, account: str) -> list[Copy]:
        share = self._shares.get(account)
        return list(share.copies) if share else []

    def copies_by_age(self) -> list[Copy]:
        """The copies that nothing pins, the least recently used first."""
        copies = [copy for share in self._shares.values() for copy in share.evictable]
        return sorted(copies, key=lambda copy: copy.used)

    def make_room(self, account: str, size: int) -> list[Copy] | None:
        """Evict until ``size`` more bytes fit the account's quota and the tier. The copies evicted; None, with nothing
        changed, where they cannot be made to fit."""
        share = self._share(account)
        if share is None:
            return None
        own = 0 if share.limit is None else self._copies_in(share.bytes + size - share.limit)
        all_ = self._copies_in(self.bytes + size - self.capacity)
        if own > len(share.evictable) or all_ > self._evictable:
            return None
        evicted = [self._evict(share) for _ in range(own)]
        return evicted + self._evict_for(size)

    def enforce(self) -> list[Copy]:
        """Evict what is above a quota or the capacity, as far as it can be evicted now."""
        evicted = []
        for share in self._shares.values():
            while share.over and share.evictable:
                evicted.append(self._evict(share))
        return evicted + self._evict_for(0)

    def set_limits(self, limits: dict[str, tuple[int | None, float]]) -> list[str]:
        """Replace all quotas: account -> (bytes, weight). The accounts that are not known any more."""
        self._implicit = False
        for account, (limit, weight) in limits.items():
            share = self._shares.setdefault(account, Share(limit, weight))
            share.limit, share.weight = limit, weight
        return [account for account in self._shares if account not in limits]

    def remove_account(self, account: str) -> None:
        """Forget an account that has nothing any more."""
        share = self._shares.pop(account)
        assert not share.bytes, f"{account} still has {share.bytes} bytes"

    def add(self, copy: Copy) -> None:
        """Take a copy in, as the most recently used; there is room for it."""
        share = self.charge(copy.account, self.copy_bytes)
        share.copies[copy] = None
        copy.live = True
        if not copy.pins:
            self._offer(share, copy)

    def remove(self, copy: Copy) -> None:
        """The copy is no more. Nothing happens where it is not."""
        if not copy.live:
            return
        share = self._shares[copy.account]
        self._withdraw(share, copy)
        del share.copies[copy]
        copy.live = False
        self.refund(copy.account, self.copy_bytes)

    def touch(self, copy: Copy) -> None:
        """The copy was used just now."""
        if copy.live and not copy.pins:
            self._shares[copy.account].evictable.move_to_end(copy)
            self._stamp(copy)

    def pin(self, copy: Copy) -> None:
        copy.pins += 1
        if copy.live:
            self._withdraw(self._shares[copy.account], copy)

    def unpin(self, copy: Copy) -> None:
        """The last to unpin a copy makes it the most recently used."""
        copy.pins -= 1
        if copy.live and not copy.pins:
            self._offer(self._shares[copy.account], copy)

    def charge(self, account: str, size: int) -> Share:
        """Bytes of the account that are no copies: swapped requests."""
        share = self._share(account)
        assert share is not None, f"{account} is not known"
        share.bytes += size
        self.bytes += size
        return share

    def refund(self, account: str, size: int) -> None:
        self._shares[account].bytes -= size
        self.bytes -= size

    def check(self) -> None:
        """Raise AssertionError unless the counters equal what they count, swapped requests left out."""
        shares = self._shares.values()
        assert self.bytes == sum(share.bytes for share in shares)
        assert self._evictable == sum(len(share.evictable) for share in shares)
        for share in shares:
            assert share.bytes >= len(share.copies) * self.copy_bytes
            assert all(copy.live for copy in share.copies)
            assert set(share.evictable) == {copy for copy in share.copies if not copy.pins}

    def _share(self, account: str) -> Share | None:
        share = self._shares.get(account)
        if share is None and self._implicit:
            share = self._shares[account] = Share(None, 1.0)
        return share

    def _copies_in(self, size: int) -> int:
        """How many copies have to go for that many bytes."""
        return max(0, -(-size // self.copy_bytes))

    def _evict_for(self, size: int) -> list[Copy]:
        """Evict until the tier has room for that much, or nothing to evict: each time from whoever is above its quota,
        else has most bytes per weight."""
        evicted: list[Copy] = []
        if self.bytes + size <= self.capacity:
            return evicted
        ranks = [(_rank(share), account) for account, share in self._shares.items() if share.evictable]
        heapify(ranks)
        while ranks and self.bytes + size > self.capacity:
            account = ranks[0][1]
            share = self._shares[account]
            evicted.append(self._evict(share))
            if share.evictable:
                heapreplace(ranks, (_rank(share), account))
            else:
                heappop(ranks)
        return evicted

    def _evict(self, share: Share) -> Copy:
        copy = next(iter(share.evictable))
        self.remove(copy)
        return copy

    def _offer(self, share: Share, copy: Copy) -> None:
        share.evictable[copy] = None
        self._evictable += 1
        self._stamp(copy)

    def _stamp(self, copy: Copy) -> None:
        self._uses += 1
        copy.used = self._uses

    def _withdraw(self, share: Share, copy: Copy) -> None:
        if copy in share.evictable:
            del share.evictable[copy]
            self._evictable -= 1


def _rank(share: Share) -> tuple[bool, float]:
    """Who gives way first has the least."""
    return share.over == 0, -share.bytes / share.weight
