"""The disk tier: what a restart finds, what a crash tears, what is really gone, and whose folder it is."""

from __future__ import annotations

import errno
import logging
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pagoda_inference.kv.entry import Entry
from pagoda_inference.kv.tiers import disk as disk_files
from pagoda_inference.kv.tiers import manifest as manifest_file
from pagoda_inference.kv.tiers.disk_tier import MOST_WAITING
from pagoda_inference.kv.tiers.tiers import TierQuota
from tests.kv.tiers.small_engine import SIZE, SmallEngine, content, files_with


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kv"


def flushed(folder: Path, *chains: tuple[str, int], host: int = 8, disk: int = 8) -> list[list[Entry]]:
    """An engine stores chains (account, length) and stops in order."""
    engine = SmallEngine(folder, host=host, disk=disk)
    entries = [engine.chain(account, "text", length) for account, length in chains]
    for chain in entries:
        engine.store(*reversed(chain))
    engine.tiers.flush(10)
    engine.tiers.close()
    return entries


def restarted(folder: Path, **options) -> tuple[SmallEngine, dict[bytes, Entry]]:
    """Another engine on the folder, and its entries by key."""
    engine = SmallEngine(folder, **options)
    entries: dict[bytes, Entry] = {}
    for found in engine.tiers.recovered():
        root = engine.root(found.account, found.scope)
        parent = root if found.parent_key is None else entries[found.parent_key]
        entry = entries[found.key] = Entry(found.key, found.packed, parent, root)
        entry.disk = found.disk
        entry.used_by = set(found.lineages)
        engine.tiers.bind(entry)
    return engine, entries


def payloads(folder: Path) -> list[Path]:
    return sorted((folder / "payloads").glob("*.kv"))


def test_what_leaves_the_host_goes_to_disk_and_is_promoted_from_there(folder: Path) -> None:
    engine = SmallEngine(folder, host=1)
    first, second = engine.stored("acme", "a", "b")
    assert (first.host, second.disk) == (None, None)
    assert engine.tiers.usage("acme").disk == SIZE
    assert engine.load(first) == [1]
    assert engine.load(second) == [1]
    assert engine.tiers.counters["disk"].loaded == engine.tiers.counters["disk"].stored == 1
    assert engine.gone == []


def test_an_entry_may_be_loaded_while_it_is_being_written(folder: Path) -> None:
    engine = SmallEngine(folder, host=1)
    first, second = engine.entry("acme", "a"), engine.entry("acme", "b")
    engine.store(first)
    engine.store(second, run=False)
    arrived = engine.load(first, run=False)
    engine.run()
    assert arrived == [1]


def test_writes_to_disk_are_bounded_and_the_rest_is_dropped(folder: Path) -> None:
    engine = SmallEngine(folder, host=MOST_WAITING + 3, disk=50)
    entries = engine.stored("acme", *map(str, range(MOST_WAITING + 3)))
    assert engine.tiers.stow("globex", range(MOST_WAITING + 3), lambda stowed: None)
    assert [entry.disk is not None for entry in entries] == [True] * MOST_WAITING + [False] * 3
    assert engine.gone == entries[MOST_WAITING:]
    assert engine.tiers.counters["host"].dropped == 3


def test_a_full_disk_tier_evicts_by_share_and_age_and_the_files_go(folder: Path) -> None:
    engine = SmallEngine(folder, host=1, disk=2)
    first, second, third, newest = engine.stored("acme", "a", "b", "c", "d")
    assert [entry.disk is not None for entry in (first, second, third)] == [False, True, True]
    assert engine.gone == [first]
    assert files_with(folder, content(first)) == []
    assert len(payloads(folder)) == 2
    assert newest.host is not None


def test_quotas_hold_on_disk_and_a_lowered_one_evicts(folder: Path) -> None:
    engine = SmallEngine(folder, host=1)
    engine.stored("acme", "a", "b", "c", "d")
    (rival,) = engine.stored("globex", "x")
    engine.stored("globex", "y")
    engine.tiers.set_quotas({"acme": TierQuota(None, 2 * SIZE), "globex": TierQuota()})
    engine.run()
    assert engine.tiers.usage("acme").disk == 2 * SIZE
    assert rival.disk is not None
    assert len(payloads(folder)) == engine.tiers.totals.disk // SIZE


def test_a_restart_finds_chains_with_their_lineages_parents_first(folder: Path) -> None:
    engine = SmallEngine(folder)
    chain = [engine.entry("acme", "0", lineages=["talk"])]
    chain.append(engine.entry("acme", "1", chain[0], lineages=["talk", "other"]))
    engine.store(*reversed(chain))
    rival = engine.stored("globex", "x")[0]
    secret = engine.tiers.secret
    engine.tiers.flush(10)
    engine.tiers.close()
    again, entries = restarted(folder)
    assert again.tiers.secret == secret
    assert set(entries) == {chain[0].key, chain[1].key, rival.key}
    assert entries[chain[1].key].lineages == {"talk", "other"}
    assert entries[chain[1].key].parent is entries[chain[0].key]
    assert again.load(*[entries[entry.key] for entry in chain]) == [2]
    assert again.load(entries[rival.key]) == [1]
    assert again.tiers.recovered() == []


def test_a_restart_keeps_what_fits_a_smaller_disk(folder: Path) -> None:
    flushed(folder, ("acme", 6))
    engine, entries = restarted(folder, disk=4)
    engine.run()
    assert len(entries) <= 4
    assert len(payloads(folder)) == len(entries)
    assert engine.tiers.totals.disk == len(entries) * SIZE
    assert engine.load(*entries.values()) == [len(entries)]


def test_accounts_deleted_while_the_engine_was_down_are_purged(folder: Path) -> None:
    (acme,), (rival,) = flushed(folder, ("acme", 1), ("globex", 1))
    engine, entries = restarted(folder)
    engine.tiers.set_quotas({"globex": TierQuota()})
    engine.run()
    assert files_with(folder, content(acme)) == files_with(folder, b"acme") == []
    assert engine.gone == [entries[acme.key]]
    assert engine.load(entries[rival.key]) == [1]


def test_what_is_forgotten_is_gone_from_the_files_with_its_tokens(folder: Path) -> None:
    engine = SmallEngine(folder, host=1)
    secret_one, kept, _ = engine.stored("acme", "secret words", "kept", "newest")
    assert files_with(folder, content(secret_one))
    assert files_with(folder, b"secret words")
    engine.tiers.forget(secret_one)
    engine.run()
    assert files_with(folder, content(secret_one)) == files_with(folder, b"secret words") == []
    assert engine.load(kept) == [1]
    assert engine.tiers.usage("acme").disk == SIZE


def test_who_deletes_can_hear_when_it_is_gone(folder: Path) -> None:
    engine = SmallEngine(folder, host=1)
    entry = engine.stored("acme", "a", "b")[0]
    seen: list[list[str]] = []
    engine.tiers.forget(entry)
    engine.tiers.after(lambda: seen.append(files_with(folder, content(entry))))
    assert seen == []
    engine.run()
    assert seen == [[]]


@pytest.mark.parametrize("released", [0, 1, 2])
def test_what_is_forgotten_on_its_way_to_disk_never_arrives(folder: Path, released: int) -> None:
    engine = SmallEngine(folder, host=1)
    entry = engine.stored("acme", "secret words")[0]
    engine.store(engine.entry("acme", "b"), run=False)
    engine.copier.release(released)
    engine.tiers.forget(entry)
    engine.run()
    assert files_with(folder, content(entry)) == files_with(folder, b"secret words") == []
    assert engine.tiers.usage("acme").disk == 0
    engine.tiers.close()
    assert restarted(folder)[1] == {}


def test_deletions_of_before_and_after_a_write_stay_in_order(folder: Path) -> None:
    """The deletion of a payload that is being written is not joined with an earlier one that waits."""
    engine = SmallEngine(folder, host=1)
    first, second = engine.stored("acme", "a", "b")
    engine.tiers.forget(first)
    engine.store(engine.entry("acme", "c"), run=False)
    assert second.disk is not None
    engine.tiers.forget(second)
    engine.run()
    assert files_with(folder, content(first)) == files_with(folder, content(second)) == []


def test_lineages_that_change_are_known_after_a_restart_and_leave_no_older_record(folder: Path) -> None:
    engine = SmallEngine(folder, host=1)
    entry = engine.entry("acme", "secret words", lineages=["talk"])
    engine.store(entry)
    engine.stored("acme", "b")
    for lineages in ({"talk", "other"}, {"other"}, {"other", "third"}):
        entry.used_by = lineages
        engine.tiers.lineages_changed(entry)
    engine.run()
    assert (folder / "manifest").read_bytes().count(b"secret words") == 1
    engine.tiers.close()
    assert restarted(folder)[1][entry.key].lineages == {"other", "third"}


def test_lineages_told_again_write_nothing(folder: Path) -> None:
    engine = SmallEngine(folder, host=1)
    entry = engine.entry("acme", "a", lineages=["one", "two"])
    engine.store(entry)
    engine.stored("acme", "b")
    before = (folder / "manifest").read_bytes()
    for lineages in ({"one"}, {"one", "two"}):
        entry.used_by = lineages
        engine.tiers.lineages_changed(entry)
    engine.run()
    assert (folder / "manifest").read_bytes() == before


def tear(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def flip(path: Path, position: int) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 1
    path.write_bytes(damaged)


def test_a_torn_tail_costs_the_last_record_and_its_payload(folder: Path) -> None:
    ((first, second),) = flushed(folder, ("acme", 2))
    tear(folder / "manifest", 5)
    engine, entries = restarted(folder)
    assert len(entries) < 2
    assert len(payloads(folder)) == len(entries)
    lost = [entry for entry in (first, second) if entry.key not in entries]
    assert all(files_with(folder, content(entry)) == [] for entry in lost)
    assert engine.tiers.totals.disk == len(entries) * SIZE


def test_a_damaged_record_costs_itself_and_what_follows_it(folder: Path) -> None:
    ((acme,), (rival,)) = flushed(folder, ("acme", 1), ("globex", 1))
    position = (folder / "manifest").read_bytes().index(b"acme")
    flip(folder / "manifest", position)
    assert set(restarted(folder)[1]) == {rival.key}
    assert files_with(folder, content(acme)) == []


def test_a_truncated_payload_is_ignored_and_removed(folder: Path) -> None:
    (chain,) = flushed(folder, ("acme", 3))
    victim = Path(files_with(folder, content(chain[1]))[0])
    tear(victim, 1)
    engine, entries = restarted(folder)
    assert set(entries) == {chain[0].key}, "what follows it is out of reach"
    assert len(payloads(folder)) == 1
    assert engine.load(*entries.values()) == [1]


@pytest.mark.parametrize("damage", [lambda path: flip(path, 7), lambda path: tear(path, 9), Path.unlink])
def test_a_payload_damaged_later_is_never_loaded(folder: Path, damage: Callable[[Path], None]) -> None:
    (chain, rivals) = flushed(folder, ("acme", 3), ("globex", 1))
    engine, entries = restarted(folder)
    damage(Path(files_with(folder, content(chain[1]))[0]))
    assert engine.load(*[entries[entry.key] for entry in chain]) == [1]
    assert engine.gone == [entries[chain[1].key]]
    assert engine.tiers.counters["disk"].failed == 1
    assert engine.load(entries[rivals[0].key]) == [1]
    assert engine.tiers.usage("acme").disk == 2 * SIZE


def test_payloads_that_changed_places_are_never_loaded(folder: Path) -> None:
    ((acme,), (rival,)) = flushed(folder, ("acme", 1), ("globex", 1))
    engine, entries = restarted(folder)
    own, other = (Path(files_with(folder, content(entry))[0]) for entry in (acme, rival))
    shutil.copyfile(other, own)
    assert engine.load(entries[acme.key]) == [0]


def test_foreign_files_are_left_alone(folder: Path) -> None:
    flushed(folder, ("acme", 1))
    foreign = [folder / "notes.txt", folder / "payloads" / "README", folder / "payloads" / "123.kv"]
    for path in foreign:
        path.write_text("mine")
    (folder / "payloads" / f"{98:016x}.kv").mkdir()
    stray = folder / "payloads" / f"{99:016x}.kv"
    stray.write_bytes(b"no record")
    _, entries = restarted(folder)
    assert len(entries) == 1
    assert all(path.read_text() == "mine" for path in foreign)
    assert not stray.exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\x02\xff\xff\xff\xff"),
        lambda path: path.write_text("some other program's manifest " * 20),
        Path.unlink,
    ],
)
def test_a_foreign_or_lost_manifest_is_replaced(folder: Path, make: Callable[[Path], None]) -> None:
    ((acme,),) = flushed(folder, ("acme", 1))
    make(folder / "manifest")
    engine, entries = restarted(folder, host=1)
    assert entries == {}
    assert files_with(folder, content(acme)) == []
    first, _ = engine.stored("acme", "new", "newer")
    engine.tiers.close()
    assert set(restarted(folder)[1]) == {first.key}


@pytest.mark.parametrize("change", ["model", "secret"])
def test_what_another_model_or_secret_left_is_removed(folder: Path, change: str) -> None:
    ((acme,),) = flushed(folder, ("acme", 1))
    if change == "secret":
        (folder / "secret").write_bytes(b"short")
    _, entries = restarted(folder, model="other" if change == "model" else "tiny")
    assert entries == {}
    assert files_with(folder, content(acme)) == files_with(folder, acme.packed) == []


def test_a_folder_is_its_owners_alone(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    flushed(folder, ("acme", 1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_two_engines_never_share_a_folder(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = SmallEngine(folder, host=1)
    entry = first.stored("acme", "a", "b")[0]
    with caplog.at_level(logging.ERROR):
        second = SmallEngine(folder, host=1)
    assert [record.message for record in caplog.records if record.name.startswith("pagoda")] == ["disk_tier_off"]
    assert second.tiers.enabled
    assert second.tiers.capacity.disk == 0
    assert second.tiers.secret != first.tiers.secret
    lost, _ = second.stored("acme", "c", "d")
    assert second.gone == [lost]
    SmallEngine(folder, host=1, disk=0)  # not even to clear it
    assert first.load(entry) == [1]
    second.tiers.close()
    first.tiers.close()
    assert set(restarted(folder)[1]) == {entry.key}


def test_a_folder_that_cannot_be_had_costs_the_disk_tier_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with caplog.at_level(logging.ERROR):
        engine = SmallEngine(tmp_path / "file" / "kv", host=1)
    assert [record.message for record in caplog.records if record.name.startswith("pagoda")] == ["disk_tier_off"]
    first, _ = engine.stored("acme", "a", "b")
    assert engine.gone == [first]


def test_without_a_disk_tier_nothing_of_an_earlier_one_stays(folder: Path) -> None:
    ((acme,),) = flushed(folder, ("acme", 1))
    SmallEngine(folder, disk=0)
    assert files_with(folder, content(acme)) == files_with(folder, acme.packed) == []


def test_a_full_disk_is_harmless_counted_and_logged_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = SmallEngine(folder, host=1)
    kept = engine.stored("globex", "x", "y")[0]

    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[: SIZE // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(disk_files, "write_file", full)
        lost = engine.stored("acme", "a", "b", "c")[:2]
    assert [record.message for record in caplog.records if record.name.startswith("pagoda")] == ["tier_copy_failed"]
    assert [entry for entry in lost if entry in engine.gone] == lost
    assert engine.tiers.counters["disk"].failed >= 2
    assert engine.tiers.totals.disk == SIZE * len(payloads(folder))
    assert engine.load(kept) == [1]
    assert engine.stored("acme", "d", "e")[0].disk is not None


def test_a_manifest_that_cannot_be_written_leaves_no_payload(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SmallEngine(folder, host=1)
    with monkeypatch.context() as patch:
        patch.setattr(manifest_file, "write_at", _fails)
        lost = engine.stored("acme", "a", "b")[0]
    assert engine.gone == [lost]
    engine.stored("acme", "c")
    assert files_with(folder, content(lost)) == []


def test_what_could_not_be_erased_is_erased_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SmallEngine(folder, host=1)
    entry = engine.stored("acme", "secret words", "b")[0]
    with monkeypatch.context() as patch:
        patch.setattr(disk_files, "remove", _fails)
        engine.tiers.forget(entry)
        engine.run()
    assert files_with(folder, content(entry))
    engine.stored("acme", "c")
    assert files_with(folder, content(entry)) == files_with(folder, b"secret words") == []


def _fails(*arguments: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_stopping_saves_what_was_used_last_where_not_all_has_room(folder: Path) -> None:
    engine = SmallEngine(folder, host=6, disk=3)
    entries = engine.stored("acme", *"abcdef")
    engine.tiers.flush(10)
    engine.tiers.close()
    assert set(restarted(folder)[1]) == {entry.key for entry in entries[3:]}


def test_stopping_takes_no_longer_than_it_may(folder: Path) -> None:
    engine = SmallEngine(folder, host=6)
    engine.stored("acme", *"abcdef")
    engine.tiers.flush(0)
    engine.tiers.close()
    assert restarted(folder)[1] == {}


def test_a_crash_loses_what_was_not_written_yet_and_no_more(folder: Path) -> None:
    engine = SmallEngine(folder, host=1)
    written, waiting = engine.stored("acme", "a", "b")
    engine.store(engine.entry("acme", "c"), run=False)
    assert waiting.disk is not None
    engine.copier.abandon()
    engine.tiers.close()
    again, entries = restarted(folder)
    assert set(entries) == {written.key}
    assert again.load(*entries.values()) == [1]


def test_a_copy_evicted_before_it_had_an_entry_leaves_no_handle(folder: Path) -> None:
    flushed(folder, ("acme", 1))
    engine = SmallEngine(folder)
    (found,) = engine.tiers.recovered()
    engine.tiers.set_quotas({"globex": TierQuota()})
    entry = engine.entry("acme", "text 0")
    entry.disk = found.disk
    engine.tiers.bind(entry)
    assert entry.disk is None
    assert engine.gone == [entry]


def test_a_manifest_that_is_mostly_blank_is_written_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_file, "_COMPACT_BYTES", 1000)
    engine = SmallEngine(folder, host=1, disk=3)
    entries = engine.stored("acme", *map(str, range(100)))
    assert (folder / "manifest").stat().st_size < 3000
    engine.tiers.close()
    assert set(restarted(folder)[1]) == {entry.key for entry in entries[-4:-1]}
