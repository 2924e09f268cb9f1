"""Anything may happen to the tiers in any order: bytes add up, quotas hold, nobody gets wrong bytes, what is deleted is
gone, and every ``done`` is called once."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagoda_inference.kv.entry import Entry
from pagoda_inference.kv.tiers import disk as disk_files
from pagoda_inference.kv.tiers import manifest as manifest_file
from pagoda_inference.kv.tiers.host import Stowed
from pagoda_inference.kv.tiers.tiers import TierQuota
from tests.kv.happened import check_all_happened
from tests.kv.tiers.small_engine import SIZE, SmallEngine, content, files_with

TENANTS = ["acme", "globex", "initech"]
FIRED: Counter[str] = Counter()
"""How often each thing happened over all examples: what never happened was not tested (PAGODA_TEST_EXAMPLES)."""


class Faults:
    """Every write and removal of the disk tier goes through here; while ``on``, each third fails, half done."""

    def __init__(self) -> None:
        self.on = False
        self._count = 0
        self._original = disk_files.write_file, disk_files.remove, manifest_file.write_at
        disk_files.write_file = self._wrap(disk_files.write_file, half=True)
        disk_files.remove = self._wrap(disk_files.remove)
        manifest_file.write_at = self._wrap(manifest_file.write_at)

    def restore(self) -> None:
        disk_files.write_file, disk_files.remove, manifest_file.write_at = self._original

    def _wrap(self, function: Callable[..., Any], *, half: bool = False) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            self._count += self.on
            if self.on and self._count % 3 == 0:
                FIRED["disk error"] += 1
                if half:
                    function(arguments[0], arguments[1][: SIZE // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*arguments)

        return wrapped


class TiersMachine(RuleBasedStateMachine):
    """Three tenants, small tiers. ``deleted`` are the entries whose content may be nowhere any more."""

    @initialize(host=st.integers(1, 8), disk=st.integers(0, 12) | st.integers(4, 12))
    def start(self, host: int, disk: int) -> None:
        logging.getLogger("pagoda_inference.kv.tiers").setLevel(logging.CRITICAL)  # it fails all the time here
        self.folder = Path(tempfile.mkdtemp(prefix="tiers-"))
        self.faults = Faults()
        self.size = (host, disk)
        self.serial = 0
        self.deleted: list[Entry] = []
        self.begin()

    def begin(self) -> None:
        """An engine starts on the folder."""
        host, disk = self.size
        self.engine = SmallEngine(self.folder, host=host, disk=disk)
        self.engine.tiers.on_gone = self.is_gone
        self.tiers = self.engine.tiers
        self.entries: list[Entry] = []
        self.stowed: list[Stowed] = []
        self.quotas: dict[str, TierQuota] | None = None
        self.expected = self.called = 0

    def is_gone(self, entry: Entry) -> None:
        assert entry.block is None
        assert entry.host is None
        assert entry.disk is None
        assert entry in self.entries, "told twice, or of an entry that was forgotten"
        FIRED["gone"] += 1
        self.entries.remove(entry)

    def expect(self, function: Callable[..., None] = lambda *outcome: None) -> Callable[..., None]:
        """A ``done`` that has to be called exactly once."""
        self.expected += 1
        calls: list[None] = []

        def done(*outcome: Any) -> None:
            calls.append(None)
            assert len(calls) == 1, "a done was called twice"
            self.called += 1
            function(*outcome)

        return done

    # --- what the engine does -----------------------------------------------------------------------------------------

    @rule(account=st.sampled_from(TENANTS), count=st.integers(1, 4), data=st.data())
    def store(self, account: str, count: int, data: st.DataObject) -> None:
        own = [entry for entry in self.entries if entry.root.account == account]
        parent = data.draw(st.sampled_from([None, *own]))
        entries: list[Entry] = []
        for _ in range(count):
            self.serial += 1
            parent = self.engine.entry(account, f"<{self.serial}>", parent, lineages=["talk"])
            entries.append(parent)
        self.copy_down(entries)

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def store_again(self, data: st.DataObject) -> None:
        """What was promoted leaves the pool a second time."""
        entries = data.draw(st.lists(st.sampled_from(self.entries), max_size=3, unique_by=id))
        self.copy_down([entry for entry in entries if entry.block is None])

    def copy_down(self, entries: list[Entry]) -> None:
        blocks = [self.engine.compute(entry) for entry in entries]
        self.entries += [entry for entry in entries if entry not in self.entries]

        def evict() -> None:
            for entry in entries:
                entry.block = None
                if entry.host is None and entry.disk is None and entry in self.entries:
                    self.entries.remove(entry)

        self.tiers.store(entries, blocks, self.expect(evict))

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        entries = data.draw(st.lists(st.sampled_from(self.entries), min_size=1, max_size=4, unique_by=id))
        blocks = list(range(16, 16 + len(entries)))

        def arrived(count: int) -> None:
            FIRED["loaded"] += count
            for entry, seen in zip(entries[:count], self.seen[key], strict=False):
                assert seen == content(entry), "wrong bytes"
                assert entry in self.entries, "what was forgotten arrived"

        key = object()
        self.watch(key, blocks)
        self.tiers.load(entries, blocks, self.expect(arrived))

    def watch(self, key: object, blocks: list[int]) -> None:
        """Loads share blocks here: take down what each wrote, when it wrote it."""
        if not hasattr(self, "seen"):
            self.seen: dict[object, list[bytes]] = {}
        seen = self.seen[key] = []
        backend = self.engine.backend
        submit = self.engine.copier.submit

        def submit_once(work: Callable[[], None], done: Callable[..., None]) -> None:
            del self.engine.copier.submit

            def watched() -> None:
                work()
                seen.extend(backend.blocks[block] for block in blocks)

            submit(watched, done)

        self.engine.copier.submit = submit_once

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        self.tiers.touch(data.draw(st.sampled_from(self.entries)))

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), lineage=st.sampled_from(["talk", "branch", "other"]))
    def lineages_change(self, data: st.DataObject, lineage: str) -> None:
        entry = data.draw(st.sampled_from(self.entries))
        entry.used_by = {lineage, "talk"}
        self.tiers.lineages_changed(entry)

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.entries))
        self.entries.remove(entry)
        self.deleted.append(entry)
        self.tiers.forget(entry)
        assert entry.host is None
        assert entry.disk is None
        FIRED["forgotten"] += 1

    @rule(account=st.sampled_from(TENANTS), count=st.integers(1, 5))
    def stow(self, account: str, count: int) -> None:
        before = self.tiers.totals
        others = sum(stowed.size for stowed in self.stowed if stowed.live)
        taken = self.tiers.stow(account, range(count), self.expect(self.has_stowed))
        assert sum(stowed.size for stowed in self.stowed if stowed.live) == others, "another request was displaced"
        if not taken:
            self.expected -= 1
            assert self.tiers.totals == before
        FIRED[f"stow {taken}"] += 1

    def has_stowed(self, stowed: Stowed | None) -> None:
        if stowed is not None:
            self.stowed.append(stowed)

    @precondition(lambda self: self.stowed)
    @rule(data=st.data(), discard=st.booleans())
    def unstow(self, data: st.DataObject, discard: bool) -> None:
        stowed = data.draw(st.sampled_from(self.stowed))
        live = stowed.live
        places = [(index, 24 + index) for index in range(stowed.count)]
        self.tiers.unstow(stowed, places if live else [], self.expect())
        if discard:
            self.tiers.discard(stowed)
            self.stowed.remove(stowed)

    @rule(
        quotas=st.lists(
            st.tuples(st.none() | st.integers(0, 8), st.none() | st.integers(0, 8), st.sampled_from([0.5, 1, 4])),
            min_size=3,
            max_size=3,
        ),
        deleted=st.sampled_from([*TENANTS, None, None, None]),
    )
    def set_quotas(self, quotas: list[tuple[int | None, int | None, float]], deleted: str | None) -> None:
        def size(blocks: int | None) -> int | None:
            return None if blocks is None else blocks * SIZE

        self.quotas = {
            account: TierQuota(size(host), size(disk), weight)
            for account, (host, disk, weight) in zip(TENANTS, quotas, strict=True)
            if account != deleted
        }
        lost = [entry for entry in self.entries if entry.root.account == deleted]
        self.tiers.set_quotas(self.quotas)
        for entry in lost:
            assert entry.host is None
            assert entry.disk is None
            if entry in self.entries:
                self.entries.remove(entry)
        self.deleted += lost
        FIRED["account deleted"] += bool(lost)

    @rule(count=st.integers(1, 6))
    def work(self, count: int) -> None:
        self.engine.copier.release(count)

    @rule()
    def poll(self) -> None:
        self.tiers.poll()

    @rule()
    def settle(self) -> None:
        self.engine.run()

    @rule(account=st.sampled_from(TENANTS), turns=st.integers(2, 5), data=st.data())
    def converse(self, account: str, turns: int, data: st.DataObject) -> None:
        """A busy account: enough to reach the disk."""
        for _ in range(turns):
            self.store(account, 2, data)
            self.engine.run()
        self.load(data) if self.entries else None

    # --- what happens to it -------------------------------------------------------------------------------------------

    @rule(on=st.booleans())
    def disk_fails(self, on: bool) -> None:
        self.faults.on = on

    @rule(on=st.booleans())
    def device_fails(self, on: bool) -> None:
        self.engine.backend.broken = on

    @rule(data=st.data())
    def file_is_torn(self, data: st.DataObject) -> None:
        files = sorted((self.folder / "payloads").glob("*.kv")) if self.size[1] else []
        if files:
            path = data.draw(st.sampled_from(files))
            content = bytearray(path.read_bytes())
            if content and data.draw(st.booleans()):
                content[data.draw(st.integers(0, len(content) - 1))] ^= 8
            path.write_bytes(content if data.draw(st.booleans()) else content[: len(content) // 2])
            FIRED["torn"] += 1

    @rule(flush=st.booleans())
    def stop_and_start(self, flush: bool) -> None:
        self.faults.on = False
        if flush:
            self.tiers.flush(10)
        self.tiers.close()
        assert self.called == self.expected, "a done was lost"
        self.restart()

    @rule(torn=st.integers(0, 200))
    def crash_and_start(self, torn: int) -> None:
        """Deletions that were still waiting are asked for again, as the platform does."""
        self.faults.on = False
        self.engine.copier.abandon()
        self.tiers.close()
        manifest = self.folder / "manifest"
        if torn and manifest.exists():
            whole = manifest.read_bytes()
            manifest.write_bytes(whole[: max(0, len(whole) - torn)])
        self.restart()

    def restart(self) -> None:
        self.begin()
        deleted = {entry.key for entry in self.deleted}
        known: dict[bytes, Entry] = {}
        for found in self.tiers.recovered():
            root = self.engine.root(found.account, found.scope)
            parent = root if found.parent_key is None else known[found.parent_key]
            entry = known[found.key] = Entry(found.key, found.packed, parent, root)
            entry.disk = found.disk
            entry.used_by = set(found.lineages)
            self.tiers.bind(entry)
            self.entries.append(entry)
            FIRED["recovered"] += 1
        for entry in list(known.values()):
            if entry.key in deleted:
                self.entries.remove(entry)
                self.tiers.forget(entry)

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def bytes_add_up(self) -> None:
        if not hasattr(self, "tiers"):
            return
        self.tiers._host.space.check()
        copies = sum(entry.host is not None for entry in self.entries)
        flying = self.tiers._host._stowed.values()
        stowed = sum(request.size for requests in flying for request in requests)
        assert self.tiers.totals.host == copies * SIZE + stowed
        assert self.tiers.totals.host <= self.size[0] * SIZE
        if self.tiers._disk is not None:
            self.tiers._disk.space.check()
            assert self.tiers.totals.disk == sum(entry.disk is not None for entry in self.entries) * SIZE
            assert self.tiers.totals.disk <= self.size[1] * SIZE
        for account in TENANTS:
            usage = self.tiers.usage(account)
            own = [entry for entry in self.entries if entry.root.account == account]
            assert usage.disk == sum(entry.disk is not None for entry in own) * SIZE

    @invariant()
    def quotas_are_kept_when_nothing_is_under_way(self) -> None:
        if not hasattr(self, "tiers") or not self.tiers.idle or self.quotas is None:
            return
        for account, quota in self.quotas.items():
            usage = self.tiers.usage(account)
            stowed = sum(request.size for request in self.stowed if request.live and request.account == account)
            assert quota.host_bytes is None or usage.host <= max(quota.host_bytes, stowed)
            assert quota.disk_bytes is None or usage.disk <= quota.disk_bytes

    @invariant()
    def what_is_deleted_is_gone(self) -> None:
        if not hasattr(self, "tiers") or not self.tiers.idle or self.faults.on or self.size[1] == 0:
            return
        disk = self.tiers._disk
        assert disk is not None
        if disk.disk.unerased:
            return  # the disk failed; the next change tries again
        for entry in self.deleted:
            assert files_with(self.folder, content(entry)[:60]) == []
            assert files_with(self.folder, entry.packed) == []
        assert len(list((self.folder / "payloads").glob("*.kv"))) == self.tiers.totals.disk // SIZE

    def teardown(self) -> None:
        if not hasattr(self, "tiers"):
            return
        self.faults.on = self.engine.backend.broken = False
        self.engine.run()
        assert self.called == self.expected, "a done was lost"
        if self.tiers._disk is not None:
            self.tiers._disk.disk.erase([])
        self.bytes_add_up()
        self.quotas_are_kept_when_nothing_is_under_way()
        self.what_is_deleted_is_gone()
        self.tiers.close()
        self.faults.restore()
        logging.getLogger("pagoda_inference.kv.tiers").setLevel(logging.NOTSET)
        shutil.rmtree(self.folder)


TestTiers = TiersMachine.TestCase
TestTiers.settings = settings(
    max_examples=int(os.environ.get("PAGODA_TEST_EXAMPLES", "60")), stateful_step_count=40, deadline=None
)


@pytest.mark.timeout(3600)
def test_everything_happened() -> None:
    """Runs after the machine: what never fired was not tested."""
    wanted = ["loaded", "gone", "forgotten", "stow True", "stow False", "disk error", "torn", "recovered"]
    check_all_happened(TiersMachine, TestTiers.settings, FIRED, [*wanted, "account deleted"])
