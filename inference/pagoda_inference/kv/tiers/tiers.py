"""The tiers below the pool: KV that left it, on the host and on disk, until it is wanted again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pagoda_inference.kv.tiers.copier import Copier
from pagoda_inference.kv.tiers.counters import TierCounters, TierUsage
from pagoda_inference.kv.tiers.disk import DiskCopy
from pagoda_inference.kv.tiers.disk_tier import DiskTier, Recovered
from pagoda_inference.kv.tiers.faults import Faults
from pagoda_inference.kv.tiers.flushing import flush
from pagoda_inference.kv.tiers.folder import SECRET_BYTES
from pagoda_inference.kv.tiers.host import HostCopy, Stowed
from pagoda_inference.kv.tiers.host_tier import HostTier
from pagoda_inference.kv.tiers.loading import Load
from pagoda_inference.kv.tiers.space import Copy, Space, TierQuota
from pagoda_inference.kv.tiers.start import leave_nothing, measure_copies, open_disk

if TYPE_CHECKING:
    from pagoda_inference.kv.entry import Entry
    from pagoda_inference.model.backend import Backend

MOST_IN_FLIGHT = 64
"""Blocks of ``store`` and ``load`` under way at a time. What has ended is seen between steps: with fewer than a link
copies in a step, a load waits for one step after another; with more, whoever comes next waits for longer copies."""


class Tiers:
    """``host_bytes`` of main memory and ``disk_bytes`` of ``folder`` below the backend's pool.

    All methods are for the engine's thread and none waits for a copy or the disk: a worker thread does the work, and
    every ``done`` is called by ``poll``, in order of submission, also for what failed. An entry has its handles
    (``entry.host``, ``entry.disk``) from the moment a copy of it is under way, and loses them the moment the copy is
    given up: whoever sees a handle may load, the worker does things in order.

    model: what the KV depends on beside block size and bytes; what another model left on disk is removed. notify:
    called on the worker's thread after each job, so that somebody polls.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        host_bytes: int,
        disk_bytes: int,
        folder: Path | None,
        model: str,
        notify: Callable[[], None] = lambda: None,
        copier: Copier | None = None,
    ) -> None:
        self.enabled = host_bytes > 0
        self.on_gone: Callable[[Entry], None] = lambda entry: None
        """An entry lost its last copy here and has no block either."""
        self.on_demoted: Callable[[Entry], None] = lambda entry: None
        """An entry left the host for the disk."""
        self._backend = backend
        self._copier = copier or Copier()
        self._copier.notify = notify
        self._loading = 0
        self.faults = Faults()
        size = backend.bytes_per_block
        self._host = HostTier(backend, Space(host_bytes if self.enabled else 0, size), self._copier, self._leave_host)
        self._disk: DiskTier | None = None
        self.secret = secrets.token_bytes(SECRET_BYTES)
        """What the index hashes under. Kept with the disk tier, so that a restart finds its chains."""
        if folder is not None and self.enabled and disk_bytes >= size:
            disk = open_disk(folder, backend, model)
            self.faults.disk_off = disk is None
            if disk is not None:
                self.secret = disk.secret
                space = Space(disk_bytes, size)
                failed = self.faults.copy_failed
                self._disk = DiskTier(disk, space, self._copier, lost=self._disk_copy_lost, failed=failed)
        elif folder is not None:
            leave_nothing(folder)
        self.copy_bytes_per_s = measure_copies(backend) if self.enabled else 0.0
        """Measured at start: bytes copied from the pool to the host and back, per second."""

    # --- looking ------------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """Blocks that may still be put in flight by ``store`` and ``load``."""
        return max(0, MOST_IN_FLIGHT - self._host.storing - self._loading) if self.enabled else 0

    def accepts(self, account: str) -> bool:
        """Whether ``store`` can ever keep a block of the account: there is a host tier, and its quota is a block."""
        return self._host.space.accepts(account)

    @property
    def in_flight(self) -> int:
        """Jobs whose end was not polled yet."""
        return self._copier.in_flight

    @property
    def idle(self) -> bool:
        return not self.in_flight

    def usage(self, account: str) -> TierUsage:
        """Bytes that an account keeps. What is on its way counts from the moment it set out."""
        return TierUsage(
            self._host.space.bytes_of(account), self._disk.space.bytes_of(account) if self._disk is not None else 0
        )

    @property
    def totals(self) -> TierUsage:
        """Bytes of all accounts."""
        return TierUsage(self._host.space.bytes, self._disk.space.bytes if self._disk is not None else 0)

    @property
    def capacity(self) -> TierUsage:
        """Bytes that the tiers have; 0 for one that is off."""
        return TierUsage(self._host.space.capacity, self._disk.space.capacity if self._disk is not None else 0)

    @property
    def counters(self) -> dict[str, TierCounters]:
        """Per tier ("host", "disk"): what happened since the start."""
        return {"host": self._host.counters, "disk": self._disk.counters if self._disk is not None else TierCounters()}

    # --- cached blocks ------------------------------------------------------------------------------------------------

    def store(self, entries: Sequence[Entry], blocks: Sequence[int], done: Callable[[], None]) -> None:
        """Copy blocks of the pool to the host; the first of them will be the first to leave it. ``done`` when none is
        read any more. Entries that are on the host already, or find no room, are left out."""
        self._host.store(entries, blocks, done, self._failed_copy)

    def load(self, entries: Sequence[Entry], blocks: Sequence[int], done: Callable[[int], None]) -> None:
        """Copy a chain's entries from wherever they are into blocks of the pool. ``done(n)``: the first n arrived
        intact and were not forgotten meanwhile. A damaged copy is forgotten."""
        load = Load(self._backend, entries, blocks, self._disk.disk if self._disk is not None else None)
        for entry, source in zip(entries, load.sources, strict=False):
            self._space_of(source).pin(source)
            source.entry = entry

        def finished(error: BaseException | None) -> None:
            self._loading -= len(blocks)
            for source in reversed(load.sources):  # tails are older than heads
                self._space_of(source).unpin(source)
            self._count_loaded(load, error)
            if load.damaged is not None and self._disk is not None and load.damaged[0].live:
                self._disk.damaged(*load.damaged)
            done(0 if error is not None else load.intact())
            self._enforce()  # a quota may have been lowered while copies were pinned

        self._loading += len(blocks)
        self._copier.submit(load.run, finished)
        for entry in entries[len(load.sources) :]:
            self._drop_dead_handles(entry)

    def touch(self, entry: Entry) -> None:
        """The entry was used."""
        for copy in self._copies(entry):
            copy.entry = entry
            self._space_of(copy).touch(copy)

    def forget(self, entry: Entry) -> None:
        """The entry's content is to be gone from every tier, from the disk's files too; also what is on its way."""
        copies = self._copies(entry)
        entry.host = entry.disk = None
        for copy in copies:
            self._forget_copy(copy)

    def lineages_changed(self, entry: Entry) -> None:
        """Other lineages use the entry: what is on disk says so, too."""
        for copy in self._copies(entry):
            if isinstance(copy, DiskCopy) and self._disk is not None:
                copy.entry = entry
                self._disk.relabel(copy, entry.lineages)

    # --- swapped requests ---------------------------------------------------------------------------------------------

    def stow(self, account: str, blocks: Sequence[int], done: Callable[[Stowed | None], None]) -> bool:
        """Copy a preempted request's blocks to the host. False at once, with nothing changed, where they do not fit its
        account's quota or the tier even without cached copies; other swapped requests are never displaced.

        ``done`` gets None where the copy failed or the account was deleted meanwhile.
        """
        return self.enabled and self._host.stow(account, blocks, done, self._failed_copy)

    def unstow(self, stowed: Stowed, places: Sequence[tuple[int, int]], done: Callable[[bool], None]) -> None:
        """Copy to the pool: (index in stowed, block). ``done(False)`` where it failed or was discarded meanwhile."""
        self._host.unstow(stowed, places, done, self._failed_copy)

    def discard(self, stowed: Stowed) -> None:
        """The swapped request needs its copy no more. Twice does nothing."""
        self._host.discard(stowed)

    # --- accounts, start and stop -------------------------------------------------------------------------------------

    def set_quotas(self, quotas: Mapping[str, TierQuota]) -> None:
        """The full list of quotas. What is above one is evicted; accounts not named lose everything, on disk too."""
        self._limit(self._host.space, {name: (quota.host_bytes, quota.weight) for name, quota in quotas.items()})
        if self._disk is not None:
            self._limit(self._disk.space, {name: (quota.disk_bytes, quota.weight) for name, quota in quotas.items()})
        self._enforce()

    def recovered(self) -> list[Recovered]:
        """What a restart found on disk, parents before children. Once; each entry made of it goes through ``bind``."""
        return self._disk.recovered() if self._disk is not None else []

    def bind(self, entry: Entry) -> None:
        """``entry.disk`` is a handle of ``recovered``: from now on the entry hears of it when the copy goes.

        A handle that is gone already is taken from the entry.
        """
        self._drop_dead_handles(entry)
        for copy in self._copies(entry):
            copy.entry = entry

    def after(self, done: Callable[[], None]) -> None:
        """``done`` when everything asked for until now has been carried out, deletions on disk among it."""
        self._copier.submit(lambda: None, lambda error: done())

    def wait(self, timeout_s: float) -> bool:
        """Wait until nothing is left to run, at most so long: for a stop, never between steps. Calls no ``done``."""
        return self._copier.wait(timeout_s)

    def poll(self) -> None:
        """Call the ``done`` of everything that has ended."""
        self._copier.poll()

    def flush(self, timeout_s: float) -> None:
        """Before a stop: what is on the host goes to disk, last used first, as far as time and room reach."""
        if self._disk is not None:
            flush(self._host, self._disk, self._copier, timeout_s)

    def close(self) -> None:
        """End the worker after what it has to do, and let another engine have the folder."""
        self._copier.close()
        while self._copier.in_flight:
            self.poll()
            self._copier.close()
        if self._disk is not None:
            self._disk.disk.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _copies(self, entry: Entry) -> list[Copy]:
        handles = (entry.host, entry.disk)
        return [copy for copy in handles if isinstance(copy, Copy) and copy.live]

    def _space_of(self, copy: Copy) -> Space:
        if isinstance(copy, HostCopy):
            return self._host.space
        assert self._disk is not None
        return self._disk.space

    def _leave_host(self, copy: HostCopy, *, failed: bool = False) -> None:
        """A copy was evicted from the host, or never got there: its content goes to disk, or is dropped."""
        entry = copy.entry
        assert entry is not None
        if entry.host is copy:
            entry.host = None
        kept = self._is_on_disk(entry)
        if not kept and not failed and copy.payload is not None and self._disk is not None:
            kept = self._disk.demote(entry, copy.payload)
            if kept:
                self.on_demoted(entry)
        if not kept and not failed:
            self._host.counters.dropped += 1
        self._gone_if_nowhere(entry)

    def _disk_copy_lost(self, copy: DiskCopy) -> None:
        entry = copy.entry
        if entry is not None:
            if entry.disk is copy:
                entry.disk = None
            self._gone_if_nowhere(entry)

    def _is_on_disk(self, entry: Entry) -> bool:
        return isinstance(entry.disk, DiskCopy) and entry.disk.live

    def _drop_dead_handles(self, entry: Entry) -> None:
        """Evicted before anybody knew whose it was."""
        for name in ("host", "disk"):
            copy = getattr(entry, name)
            if isinstance(copy, Copy) and not copy.live:
                setattr(entry, name, None)
        self._gone_if_nowhere(entry)

    def _gone_if_nowhere(self, entry: Entry) -> None:
        if entry.block is None and entry.host is None and entry.disk is None:
            self.on_gone(entry)

    def _forget_copy(self, copy: Copy) -> None:
        if isinstance(copy, HostCopy):
            self._host.forget(copy)
        elif isinstance(copy, DiskCopy) and self._disk is not None:
            self._disk.forget(copy)

    def _limit(self, space: Space, limits: dict[str, tuple[int | None, float]]) -> None:
        for account in space.set_limits(limits):
            if space is self._host.space:
                self._host.discard_all(account)
            for copy in space.copies_of(account):
                entry = copy.entry
                self._forget_copy(copy)
                if entry is not None:
                    self._drop_dead_handles(entry)
            space.remove_account(account)

    def _enforce(self) -> None:
        for copy in self._host.space.enforce():
            self._leave_host(copy)  # type: ignore[arg-type]
        if self._disk is not None:
            self._disk.enforce()

    def _count_loaded(self, load: Load, error: BaseException | None) -> None:
        if error is not None:
            self._failed_copy(error)
            return
        from_disk = sum(isinstance(source, DiskCopy) for source in load.sources[: load.arrived])
        self._host.counters.loaded += load.arrived - from_disk
        if self._disk is not None:
            self._disk.counters.loaded += from_disk

    def _failed_copy(self, error: BaseException) -> None:
        self._host.counters.failed += 1
        self.faults.copy_failed(error)
