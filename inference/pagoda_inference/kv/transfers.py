"""Copies between the pool and the tiers below it, and the blocks that they hold meanwhile.

A block being copied is held, and so counts as active: nobody writes it, takes it or evicts it until the copy has
ended. Demotion runs ahead of eviction: while the pool, or an account at its limit, is short of blocks, what would be
evicted next is copied down in the background, a bounded number of blocks at a time; whatever is evicted before its turn
comes is lost and no step ever waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.block import Block
from pagoda_inference.kv.entry import Entry
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.tiers.space import TierQuota

if TYPE_CHECKING:
    from pagoda_inference.kv.tiers.tiers import Stowed, Tiers

SHORT = 8
"""The pool is short of blocks when less than one in so many is free, an account when it is that near to its limit."""
BATCH = 4
"""Blocks of one demotion: few, so that what is held meanwhile is little."""
MOST_JOBS = 4
"""Demotion waits while more are under way: a full host makes room for it, and drops what the disk is behind with."""


class Transfers:
    """All copies of one pool. Used from the engine's thread only; ``poll`` delivers what has ended."""

    def __init__(self, pool: Pool, tiers: Tiers) -> None:
        self._pool = pool
        self._tiers = tiers
        self._copies: dict[int, list[Block]] = {}
        self._numbers = 0
        self._loads: list[_Load] = []
        self.leaving = 0
        """Blocks that are free once they are copied to the host."""
        pool.keep_unsaved = tiers.enabled
        pool.on_drop = tiers.forget  # type: ignore[method-assign]
        pool.on_lineages = tiers.lineages_changed  # type: ignore[method-assign]
        tiers.on_gone = pool.gone
        tiers.on_demoted = self._demoted_to_disk
        if tiers.enabled:
            self._recover()

    @property
    def enabled(self) -> bool:
        return self._tiers.enabled

    @property
    def in_flight(self) -> bool:
        return bool(self._copies)

    def copies(self) -> Iterator[list[Block]]:
        """The blocks that each copy holds, for the invariants."""
        yield from self._copies.values()

    def holds(self, ledger: Ledger) -> bool:
        """Whether blocks of the account are active only because they are being copied."""
        return any(
            block.account is ledger and block.references == 1 for blocks in self._copies.values() for block in blocks
        )

    def poll(self) -> None:
        """Deliver what has ended and start what is due. Never blocks."""
        if self._tiers.enabled:
            self._tiers.poll()
            for load in self._loads[:]:
                self._advance(load)
            self._demote()

    def set_quotas(self, accounts: Iterable[Ledger]) -> None:
        """What each account may keep in the tiers; the others lose everything there."""
        self._tiers.set_quotas(
            {ledger.id: TierQuota(ledger.host_bytes, ledger.disk_bytes, ledger.weight) for ledger in accounts}
        )

    @property
    def tiers(self) -> Tiers:
        return self._tiers

    def finish(self, timeout_s: float) -> None:
        """Wait for the copies in flight: what they hold cannot be given to anybody. For edits of quotas."""
        deadline = time.monotonic() + timeout_s
        while self._copies and time.monotonic() < deadline:
            self._tiers.wait(0.01)
            self._tiers.poll()

    # --- promotion ----------------------------------------------------------------------------------------------------

    def load(self, wanted: Sequence[tuple[Entry, int]], done: Callable[[int], None]) -> None:
        """Copy entries into blocks that a table holds; ``done`` gets how many of the first ones arrived intact."""
        load = _Load(list(wanted), done, self._hold([block for _, block in wanted]))
        self._loads.append(load)
        self._advance(load)

    def _advance(self, load: _Load) -> None:
        """Start as much of a load as may be in flight; no more of one that nobody waits for any longer."""
        if load.next < len(load.wanted) and self._is_alone(load):
            load.good = min(load.good, load.next)
            load.next = len(load.wanted)
        while load.next < len(load.wanted) and (room := self._tiers.room()) > 0:
            part = load.wanted[load.next : load.next + room]
            load.next += len(part)
            load.open += 1
            first = load.next - len(part)
            blocks = [block for _, block in part]
            self._tiers.load([entry for entry, _ in part], blocks, self._loaded(load, first, len(part)))
        self._end_if_done(load)

    def _is_alone(self, load: _Load) -> bool:
        """Whether the table that the load was for has let its blocks go."""
        return self._pool.block(load.wanted[load.next][1]).references == 1

    def _end_if_done(self, load: _Load) -> None:
        if load.next == len(load.wanted) and not load.open and load in self._loads:
            self._loads.remove(load)
            self._release(load.number)
            load.done(load.good)

    def _loaded(self, load: _Load, first: int, count: int) -> Callable[[int], None]:
        def done(arrived: int) -> None:
            load.open -= 1
            for entry, _ in load.wanted[first : first + arrived]:
                ledger = self._pool.accounts.find(entry.root.account)
                if ledger is not None:
                    tier = "host" if entry.host is not None else "disk"
                    ledger.promoted[tier] += 1
            if arrived < count:
                load.good = min(load.good, first + arrived)
                load.next = len(load.wanted)
            self._end_if_done(load)

        return done

    # --- swapping -----------------------------------------------------------------------------------------------------

    def stow(self, ledger: Ledger, blocks: Mapping[int, int], done: Callable[[Stowed | None], None]) -> bool:
        """Copy a preempted request's blocks to the host: block -> how many of its tables still hold it. False at once
        where they do not fit there.

        Those that nobody else holds are free for others when the copy has ended; until then they are counted in
        ``ledger.leaving``.
        """
        number = self._hold(blocks)
        held = self._copies[number]
        leaving = sum(1 for block in held if block.account is ledger and block.references == 1 + blocks[block.id])

        def ended(stowed: Stowed | None) -> None:
            self._leave(ledger, -leaving)
            self._release(number)
            done(stowed)

        self._leave(ledger, leaving)
        if self._tiers.stow(ledger.id, list(blocks), ended):
            return True
        self._leave(ledger, -leaving)
        self._release(number)
        return False

    def _leave(self, ledger: Ledger, blocks: int) -> None:
        ledger.leaving += blocks
        self.leaving += blocks

    def unstow(self, stowed: Stowed, places: Sequence[tuple[int, int]], done: Callable[[bool], None]) -> None:
        """Copy stowed blocks back: (index in ``stowed``, block that a table holds)."""
        number = self._hold([block for _, block in places])

        def ended(intact: bool) -> None:
            self._release(number)
            done(intact)

        self._tiers.unstow(stowed, list(places), ended)

    def discard(self, stowed: Stowed) -> None:
        self._tiers.discard(stowed)

    # --- demotion -----------------------------------------------------------------------------------------------------

    def _demote(self) -> None:
        """Copy down what will be evicted next, if blocks are short."""
        pool = self._pool
        pool_short = pool.free_blocks * SHORT < pool.total
        while self._tiers.room() >= BATCH and self._tiers.in_flight <= MOST_JOBS:
            ledgers = [
                ledger
                for ledger in pool.accounts
                if ledger.unsaved and (pool_short or ledger.held * SHORT > ledger.limit * (SHORT - 1))
            ]
            ledgers = [
                ledger for ledger in ledgers if pool.accounts.room(ledger) >= BATCH and self._tiers.accepts(ledger.id)
            ]
            if not ledgers:
                return
            self._save(max(ledgers, key=lambda ledger: ledger.excess), BATCH)

    def _save(self, ledger: Ledger, count: int) -> None:
        """Copy down the ledger's next ``count`` unsaved blocks; they keep their place in the order of eviction."""
        blocks = [block for _, block in zip(range(count), ledger.unsaved.values(), strict=False)]
        entries = [block.entry for block in blocks if block.entry is not None]
        for block in blocks:
            self._pool.hold(block)
        number = self._number(blocks)

        def ended() -> None:
            for entry in entries:
                if entry.host is not None:
                    ledger.demoted["host"] += 1
            self._release(number, first=True)

        self._tiers.store(entries, [block.id for block in blocks], ended)

    def _demoted_to_disk(self, entry: Entry) -> None:
        ledger = self._pool.accounts.find(entry.root.account)
        if ledger is not None:
            ledger.demoted["disk"] += 1

    def save_all(self, give_up: Callable[[], bool]) -> None:
        """At the engine's stop: copy down all that is cached, if there is a disk tier to outlive it, until ``give_up``
        says that it takes too long.
        """
        while self._tiers.capacity.disk and not give_up():
            self._tiers.poll()
            ledgers = [
                ledger
                for ledger in self._pool.accounts
                if ledger.unsaved and self._pool.accounts.room(ledger) > 0 and self._tiers.accepts(ledger.id)
            ]
            if not ledgers and not self._copies:
                return
            room = self._tiers.room()
            if ledgers and room > 0:
                ledger = ledgers[0]
                self._save(ledger, min(room, self._pool.accounts.room(ledger)))
            else:
                self._tiers.wait(0.01)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _hold(self, ids: Iterable[int]) -> int:
        return self._number(self._pool.hold_all(ids))

    def _number(self, blocks: list[Block]) -> int:
        self._numbers += 1
        self._copies[self._numbers] = blocks
        return self._numbers

    def _release(self, number: int, *, first: bool = False) -> None:
        for block in reversed(self._copies.pop(number)):
            self._pool.unhold(block, first=first)

    def _recover(self) -> None:
        """What the disk kept over a restart is findable again."""
        index = self._pool.index
        known: dict[bytes, Entry] = {}
        for record in self._tiers.recovered():
            root = index.root(record.account, record.scope, record.after)
            parent = root if record.parent_key is None else known.get(record.parent_key)
            entry = None
            if parent is root or (isinstance(parent, Entry) and parent.root is root):
                entry = index.insert(parent, record.key, record.packed, root)
            if entry is None:  # nobody could find it, or purge it
                lost = Entry(record.key, record.packed, root, root)
                lost.disk = record.disk
                self._tiers.forget(lost)
                continue
            known[record.key] = entry
            entry.disk = record.disk
            self._tiers.bind(entry)
            for lineage in record.lineages:
                index.lineages.add(entry, lineage)


class _Load:
    """A promotion: what is wanted, how far it is under way, and under what number its blocks are held."""

    __slots__ = ("done", "good", "next", "number", "open", "wanted")

    def __init__(self, wanted: list[tuple[Entry, int]], done: Callable[[int], None], number: int) -> None:
        self.wanted = wanted
        self.done = done
        self.number = number
        self.next = 0
        self.open = 0
        self.good = len(wanted)
