"""The host tier: quotas, eviction, copies in flight and swapped requests, of one account beside a rival."""

from __future__ import annotations

import logging

import pytest

from pagoda_inference.kv.tiers.host import Stowed, default_host_bytes, main_memory
from pagoda_inference.kv.tiers.tiers import MOST_IN_FLIGHT, TierQuota
from tests.kv.tiers.small_engine import SIZE, SmallEngine, content


@pytest.fixture
def engine() -> SmallEngine:
    return SmallEngine(host=4)


def quota(blocks: int | None, weight: float = 1.0) -> TierQuota:
    return TierQuota(None if blocks is None else blocks * SIZE, 0, weight)


def on_host(*entries) -> list[bool]:
    return [entry.host is not None for entry in entries]


def test_what_was_stored_comes_back_as_it_was(engine: SmallEngine) -> None:
    chain = engine.chain("acme", "hello", 3)
    assert engine.store(*chain) == ["done"]
    assert engine.load(*chain) == [3]
    assert engine.tiers.usage("acme").host == 3 * SIZE
    assert engine.tiers.usage("globex").host == 0
    assert (engine.tiers.counters["host"].stored, engine.tiers.counters["host"].loaded) == (3, 3)


def test_nothing_is_told_before_poll(engine: SmallEngine) -> None:
    entry = engine.entry("acme", "hello")
    ended = engine.store(entry, run=False)
    engine.copier.release()
    assert ended == []
    engine.tiers.poll()
    assert ended == ["done"]
    engine.tiers.poll()
    assert ended == ["done"]


def test_blocks_in_flight_are_bounded(engine: SmallEngine) -> None:
    assert engine.tiers.room() == MOST_IN_FLIGHT
    engine.store(*engine.chain("acme", "hello", 3), run=False)
    assert engine.tiers.room() == MOST_IN_FLIGHT - 3
    engine.run()
    assert engine.tiers.room() == MOST_IN_FLIGHT


def test_an_entry_may_be_loaded_while_it_is_being_stored(engine: SmallEngine) -> None:
    entry = engine.entry("acme", "hello")
    engine.store(entry, run=False)
    arrived = engine.load(entry, run=False)
    engine.run()
    assert arrived == [1]


def test_a_full_tier_evicts_the_least_recently_used_of_the_account_with_most_bytes_per_weight(
    engine: SmallEngine,
) -> None:
    engine.tiers.set_quotas({"acme": quota(None), "globex": quota(None)})
    first, second, third = engine.stored("acme", "a", "b", "c")
    (rival,) = engine.stored("globex", "x")
    engine.tiers.touch(first)
    (newer,) = engine.stored("globex", "y")
    assert on_host(first, second, third, rival, newer) == [True, False, True, True, True]
    assert engine.gone == [second]


def test_weights_decide_whose_share_is_large(engine: SmallEngine) -> None:
    engine.tiers.set_quotas({"acme": quota(None, 4.0), "globex": quota(None, 1.0)})
    acme = engine.stored("acme", "a", "b")
    (oldest, newer) = engine.stored("globex", "x", "y")
    (more,) = engine.stored("acme", "c")
    assert on_host(*acme, oldest, newer, more) == [True, True, False, True, True]


def test_an_account_at_its_quota_evicts_its_own(engine: SmallEngine) -> None:
    engine.tiers.set_quotas({"acme": quota(1), "globex": quota(None)})
    (rival,) = engine.stored("globex", "x")
    first, second = engine.stored("acme", "a", "b")
    assert on_host(rival, first, second) == [True, False, True]


def test_an_account_over_its_quota_gives_way_first(engine: SmallEngine) -> None:
    """Pinned while the quota was lowered, it is above it for a moment; a lighter account's copies stay."""
    acme = engine.stored("acme", "a", "b")
    (rival,) = engine.stored("globex", "x")
    arrived = engine.load(*acme, run=False)
    engine.tiers.set_quotas({"acme": quota(1), "globex": quota(None)})
    assert on_host(*acme, rival) == [True, True, True]
    engine.run()
    assert arrived == [2]
    assert on_host(*acme, rival) == [True, False, True]


def test_an_account_without_a_quota_keeps_nothing_and_is_told_so(engine: SmallEngine) -> None:
    engine.tiers.set_quotas({"acme": quota(0), "globex": quota(None)})
    entry = engine.entry("acme", "a")
    assert engine.store(entry) == ["done"]
    assert entry.host is None
    assert not engine.tiers.accepts("acme")
    assert not engine.tiers.accepts("unknown")
    assert engine.tiers.accepts("globex")


def test_a_copy_being_loaded_is_not_evicted(engine: SmallEngine) -> None:
    entries = engine.stored("acme", "a", "b", "c", "d")
    arrived = engine.load(entries[0], run=False)
    (rival,) = engine.stored("globex", "x")
    assert arrived == [1]
    assert on_host(*entries, rival) == [True, False, True, True, True]


@pytest.mark.parametrize("released", [0, 1])
def test_an_entry_forgotten_in_flight_stays_forgotten(engine: SmallEngine, released: int) -> None:
    entry = engine.entry("acme", "a")
    ended = engine.store(entry, run=False)
    engine.copier.release(released)
    engine.tiers.forget(entry)
    engine.run()
    assert ended == ["done"]
    assert entry.host is None
    assert engine.tiers.totals.host == 0
    assert engine.gone == []


@pytest.mark.parametrize("released", [0, 1])
def test_an_account_deleted_in_flight_keeps_nothing(engine: SmallEngine, released: int) -> None:
    entry, (rival,) = engine.entry("acme", "a"), engine.stored("globex", "x")
    ended = engine.store(entry, run=False)
    engine.copier.release(released)
    engine.tiers.set_quotas({"globex": quota(None)})
    engine.run()
    assert ended == ["done"]
    assert on_host(entry, rival) == [False, True]
    assert engine.tiers.totals.host == SIZE


def test_a_load_counts_nothing_that_was_forgotten_meanwhile(engine: SmallEngine) -> None:
    chain = engine.chain("acme", "a", 3)
    engine.store(*chain)
    arrived = engine.load(*chain, run=False)
    engine.tiers.forget(chain[1])
    engine.run()
    assert arrived == [1]


def test_a_failing_copy_is_told_counted_and_logged_once(engine: SmallEngine, caplog: pytest.LogCaptureFixture) -> None:
    kept = engine.stored("globex", "x")[0]
    engine.backend.broken = True
    with caplog.at_level(logging.ERROR):
        first, second = engine.entry("acme", "a"), engine.entry("acme", "b")
        assert engine.store(first) == engine.store(second) == ["done"]
        assert engine.load(kept) == [0]
    assert on_host(first, second, kept) == [False, False, True]
    assert engine.tiers.usage("acme").host == 0
    assert engine.tiers.counters["host"].failed == 3
    assert [record.message for record in caplog.records if record.name.startswith("pagoda")] == ["tier_copy_failed"]


def stow(engine: SmallEngine, account: str, blocks: list[int]) -> list[Stowed | None]:
    outcomes: list[Stowed | None] = []
    if engine.tiers.stow(account, blocks, outcomes.append):
        return outcomes
    return [None]


def test_a_swapped_request_comes_back_where_it_is_wanted(engine: SmallEngine) -> None:
    engine.backend.blocks[5], engine.backend.blocks[6] = b"5" * SIZE, b"6" * SIZE
    outcomes = stow(engine, "acme", [5, 6])
    assert outcomes == []
    engine.run()
    (stowed,) = outcomes
    assert stowed is not None
    assert stowed.count == 2
    assert engine.tiers.usage("acme").host == 2 * SIZE
    told: list[bool] = []
    engine.tiers.unstow(stowed, [(1, 9), (0, 7)], told.append)
    engine.run()
    assert told == [True]
    assert (engine.backend.blocks[7], engine.backend.blocks[9]) == (b"5" * SIZE, b"6" * SIZE)
    engine.tiers.discard(stowed)
    engine.tiers.discard(stowed)
    assert engine.tiers.usage("acme").host == 0
    engine.tiers.unstow(stowed, [(0, 7)], told.append)
    engine.run()
    assert told == [True, False]


def test_a_swapped_request_displaces_cached_copies_but_no_other_request(engine: SmallEngine) -> None:
    rivals = engine.stored("globex", "x", "y", "z")
    assert stow(engine, "acme", [1, 2]) == []
    engine.run()
    assert on_host(*rivals) == [False, True, True]
    assert stow(engine, "globex", [3, 4, 5]) == [None]
    assert on_host(*rivals) == [False, True, True], "a refusal changes nothing"
    assert stow(engine, "globex", [3, 4]) == []
    assert engine.tiers.totals.host == 4 * SIZE


def test_a_swapped_request_counts_in_the_quota(engine: SmallEngine) -> None:
    engine.tiers.set_quotas({"acme": quota(2), "globex": quota(None)})
    assert stow(engine, "acme", [1, 2, 3]) == [None]
    assert stow(engine, "acme", [1, 2]) == []
    engine.run()
    entry = engine.entry("acme", "a")
    engine.store(entry)
    assert entry.host is None
    engine.tiers.set_quotas({"acme": quota(1), "globex": quota(None)})
    assert engine.tiers.usage("acme").host == 2 * SIZE, "a lowered quota takes no running request's blocks"


def test_a_deleted_accounts_swapped_request_is_gone(engine: SmallEngine) -> None:
    ready = stow(engine, "acme", [1])
    engine.run()
    flying = stow(engine, "acme", [2])
    engine.tiers.set_quotas({"globex": quota(None)})
    told: list[bool] = []
    assert ready[0] is not None
    engine.tiers.unstow(ready[0], [(0, 3)], told.append)
    engine.run()
    assert (flying, told) == ([None], [False])
    assert engine.tiers.totals.host == 0


def test_a_failed_swap_is_told_and_takes_no_room(engine: SmallEngine) -> None:
    engine.backend.broken = True
    outcomes = stow(engine, "acme", [1])
    engine.run()
    assert outcomes == [None]
    assert engine.tiers.totals.host == 0


def test_without_bytes_the_tiers_are_off_and_still_tell() -> None:
    engine = SmallEngine(host=0)
    entry = engine.entry("acme", "a")
    assert not engine.tiers.enabled
    assert engine.tiers.room() == 0
    assert engine.store(entry) == ["done"]
    assert engine.load(entry) == [0]
    assert stow(engine, "acme", [1]) == [None]
    assert len(engine.tiers.secret) == 32


def test_the_copies_are_measured_and_leave_the_pool_as_it_was(engine: SmallEngine) -> None:
    assert engine.tiers.copy_bytes_per_s > 0
    assert set(engine.backend.blocks) == {bytes(SIZE)}


def test_a_real_copy_thread_gives_the_same(engine: SmallEngine) -> None:
    from pagoda_inference.kv.tiers.tiers import Tiers

    tiers = Tiers(engine.backend, host_bytes=9 * SIZE, disk_bytes=0, folder=None, model="tiny")  # type: ignore[arg-type]
    entry, told = engine.entry("acme", "a"), []
    tiers.store([entry], [engine.compute(entry)], lambda: told.append("stored"))
    tiers.load([entry], [0], lambda count: told.append(count))
    tiers.close()
    assert told == ["stored", 1]
    assert engine.backend.blocks[0] == content(entry)


def test_the_default_size_follows_the_machine() -> None:
    assert default_host_bytes("cpu", 400) == 100
    assert default_host_bytes("cuda:0", 400) == 400
    assert default_host_bytes("cuda", 1 << 60) == main_memory() // 4
