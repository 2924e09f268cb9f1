"""The engine's side of the disk tier: what goes there, what must leave, what a restart finds again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagoda_inference.kv.tiers.copier import Copier
from pagoda_inference.kv.tiers.counters import TierCounters
from pagoda_inference.kv.tiers.disk import Disk, DiskCopy
from pagoda_inference.kv.tiers.manifest import Record
from pagoda_inference.kv.tiers.space import Copy, Space

if TYPE_CHECKING:
    from pagoda_inference.kv.entry import Entry

MOST_WAITING = 8
"""Payloads on their way to disk; above that what leaves the host is dropped, so that loads do not wait behind them."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A payload that a restart found. parent_key None: it follows the root of account, scope and after.

    disk: the handle that becomes ``entry.disk``; ``Tiers.bind(entry)`` tells the tiers whose it is.
    """

    account: str
    scope: str
    after: bytes
    key: bytes
    packed: bytes
    parent_key: bytes | None
    lineages: frozenset[str]
    disk: DiskCopy


class _Edits:
    """Changes to the files that one job makes together: erased ids, and copies with new lineages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = False
        self.erased: list[int] = []
        self.relabelled: dict[DiskCopy, tuple[str, ...]] = {}
        self.durable = False

    def add(self, change: Callable[[_Edits], None]) -> bool:
        """False where the job has begun already."""
        with self._lock:
            if not self._begun:
                change(self)
            return not self._begun

    def begin(self) -> None:
        with self._lock:
            self._begun = True


class DiskTier:
    """``lost(copy)`` is called when an entry's copy is gone without anybody having forgotten it; ``failed(error)`` for
    each error of the disk. Both on the engine's thread."""

    def __init__(
        self,
        disk: Disk,
        space: Space,
        copier: Copier,
        *,
        lost: Callable[[DiskCopy], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.disk = disk
        self.space = space
        self.counters = TierCounters()
        self.waiting = 0
        """Payloads on their way to disk."""
        self._copier = copier
        self._lost = lost
        self._failed = failed
        self._edits: _Edits | None = None
        self._recovered = [DiskCopy(record, None) for record in disk.records]
        for copy in self._recovered:
            space.add(copy)
        disk.records = []
        self._erase(space.enforce(), durable=False)

    def recovered(self) -> list[Recovered]:
        """What a restart found, parents before children. Once; empty after that."""
        left = {copy.record.key: copy for copy in self._recovered if copy.live}
        self._recovered = []
        found: dict[bytes, Recovered] = {}
        while left:
            path = [next(iter(left.values()))]
            while (parent := left.get(path[-1].record.parent or b"")) is not None:
                path.append(parent)
            for copy in reversed(path):
                record = copy.record
                del left[record.key]
                if record.parent is None or record.parent in found:
                    found[record.key] = _recovered(copy)
                else:  # what comes before it had to make room
                    self.space.remove(copy)
                    self._erase([copy], durable=False)
        return list(found.values())

    def demote(self, entry: Entry, payload: bytearray, *, keep: bool = False) -> bool:
        """Write a payload for ``entry``, which has none here. False where there is no room or too much under way.

        keep: leave the copy pinned once it is written.
        """
        if self.waiting >= MOST_WAITING:
            return False
        evicted = self.space.make_room(entry.root.account, self.space.copy_bytes)
        if evicted is None:
            return False
        self._evicted(evicted)
        record = Record(
            id=self.disk.new_id(),
            account=entry.root.account,
            scope=entry.root.scope,
            after=entry.root.after,
            key=entry.key,
            packed=entry.packed,
            parent=None if entry.parent is entry.root else entry.parent.key,
            lineages=tuple(sorted(entry.lineages)),
        )
        copy = DiskCopy(record, entry)
        copy.pins = 1
        self.space.add(copy)
        entry.disk = copy

        def work() -> None:
            if copy.live:
                self.disk.write(copy, payload)

        def done(error: BaseException | None) -> None:
            self.waiting -= 1
            if not keep or error is not None:
                self.space.unpin(copy)
            if error is not None:
                self.damaged(copy, error)
            else:
                self.counters.stored += 1
            self.enforce()  # a quota may have been lowered while it was on its way

        self.waiting += 1
        self._edits = None  # what is erased from now on comes after this
        self._copier.submit(work, done)
        return True

    def release(self, copies: Iterable[Copy]) -> None:
        """Copies that were kept pinned, the one to be evicted first at the beginning."""
        for copy in copies:
            self.space.unpin(copy)

    def damaged(self, copy: DiskCopy, error: BaseException) -> None:
        """A copy could not be written, or not be read any more: it is no copy."""
        self.counters.failed += 1
        self._failed(error)
        if copy.live:
            self.space.remove(copy)
            self._erase([copy], durable=False)
            self._lost(copy)

    def forget(self, copy: DiskCopy) -> None:
        """The content is to be gone from the files and from the medium."""
        if copy.live:
            self.space.remove(copy)
            self._erase([copy], durable=True)

    def relabel(self, copy: DiskCopy, lineages: Iterable[str]) -> None:
        """Record the lineages that use the copy."""
        label = tuple(sorted(lineages))
        if label == copy.lineages:
            return
        fewer = not set(label) >= set(copy.lineages)
        copy.lineages = label

        def change(edits: _Edits) -> None:
            edits.relabelled[copy] = label
            edits.durable |= fewer

        self._edit(change)

    def enforce(self) -> None:
        """Evict what is above a quota."""
        self._evicted(self.space.enforce())

    def _evicted(self, copies: list[Copy]) -> None:
        self._erase(copies, durable=False)
        for copy in copies:
            self.counters.dropped += 1
            self._lost(copy)  # type: ignore[arg-type]

    def _erase(self, copies: Iterable[Copy], *, durable: bool) -> None:
        ids = [copy.record.id for copy in copies if isinstance(copy, DiskCopy)]

        def change(edits: _Edits) -> None:
            edits.erased += ids
            edits.durable |= durable

        if ids:
            self._edit(change)

    def _edit(self, change: Callable[[_Edits], None]) -> None:
        if self._edits is not None and self._edits.add(change):
            return
        edits = self._edits = _Edits()
        change(edits)

        def work() -> None:
            edits.begin()
            errors = []
            for copy, lineages in edits.relabelled.items():
                try:
                    if copy.live:
                        self.disk.relabel(copy, lineages)
                except OSError as error:
                    errors.append(error)
            erased = self.disk.erase(edits.erased)
            if edits.durable:
                self.disk.sync()
            if errors or not erased:
                raise errors[0] if errors else OSError("payloads could not be erased yet")

        def done(error: BaseException | None) -> None:
            if error is not None:
                self.counters.failed += 1
                self._failed(error)

        self._copier.submit(work, done)


def _recovered(copy: DiskCopy) -> Recovered:
    record = copy.record
    return Recovered(
        account=record.account,
        scope=record.scope,
        after=record.after,
        key=record.key,
        packed=record.packed,
        parent_key=record.parent,
        lineages=frozenset(record.lineages),
        disk=copy,
    )
