"""The log of one generation and the store of all: numbering, forgetting, bounds."""

from __future__ import annotations

import pytest

from pagoda_inference.generation_log import GenerationLog, Ledger, SeqForgotten
from pagoda_inference.generation_store import AccountLogsFull, GenerationStore
from pagoda_inference.protocol import Delta, Error, Finished, Started, Usage


def fill(append, deltas: int = 3, *, text: str = "word", finish: bool = True) -> None:
    append(Started("g", 1, 5, 0))
    for seq in range(2, deltas + 2):
        append(Delta("g", seq, text, (1,)))
    if finish:
        append(Finished("g", deltas + 2, "stop", Usage(5, 0, deltas)))


class Reader:
    """A cursor that counts how often it is woken."""

    def __init__(self, log: GenerationLog, after_seq: int = 0) -> None:
        self.woken = 0
        self.cursor = log.open(after_seq, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def read(self, max_bytes: int = 1 << 20) -> list[int]:
        return [event.seq for event in self.cursor.read(max_bytes)[0]]


@pytest.fixture
def log() -> GenerationLog:
    return GenerationLog(("acme", "g"), Ledger())


def test_events_are_numbered_without_gaps_and_end_once(log):
    log.append(Started("g", 1, 5, 0))
    with pytest.raises(AssertionError):
        log.append(Delta("g", 3, "gap"))
    log.append(Finished("g", 2, "stop", Usage(5, 0, 0)))
    with pytest.raises(AssertionError):
        log.append(Delta("g", 3, "late"))


def test_each_reader_has_its_own_place(log):
    early, late = Reader(log), Reader(log)
    fill(log.append)
    assert early.read() == [1, 2, 3, 4, 5]
    assert early.read() == []
    assert early.cursor.at_end
    assert late.read() == [1, 2, 3, 4, 5]
    assert Reader(log, after_seq=3).read() == [4, 5]


def test_a_reader_is_woken_by_news_and_by_what_is_there_already(log):
    early = Reader(log)
    assert early.woken == 0
    fill(log.append, finish=False)
    assert early.woken == 4
    assert Reader(log).woken == 1
    assert Reader(log, after_seq=4).woken == 0


def test_a_long_log_is_read_in_portions_of_at_least_one_event(log):
    reader = Reader(log)
    fill(log.append, deltas=20)
    seqs: list[int] = []
    portions = 0
    while portion := reader.read(max_bytes=500):
        seqs += portion
        portions += 1
    assert seqs == list(range(1, 23))
    assert portions > 5
    assert Reader(log).read(max_bytes=0) == [1]


def test_what_is_acknowledged_is_freed_and_cannot_be_attached_to(log):
    fill(log.append)
    before = log.bytes
    assert not log.acknowledge(3)
    assert 0 < log.bytes < before
    with pytest.raises(SeqForgotten):
        log.open(2, lambda: None)
    assert Reader(log, after_seq=3).read() == [4, 5]
    assert log.acknowledge(99)
    assert log.bytes == 0


def test_acknowledging_ahead_of_a_running_generation_forgets_nothing_of_the_future(log):
    fill(log.append, finish=False)
    log.acknowledge(99)
    log.append(Delta("g", 5, "new"))
    assert Reader(log, after_seq=4).read() == [5]


def test_a_reader_on_its_way_still_gets_what_another_has_acknowledged(log):
    slow = Reader(log)
    fill(log.append)
    log.acknowledge(5)
    assert slow.read() == [1, 2, 3, 4, 5]
    assert log.bytes == 0


def test_a_closed_reader_holds_nothing(log):
    slow = Reader(log)
    fill(log.append)
    log.acknowledge(5)
    assert log.bytes > 0
    log.close(slow.cursor)
    assert log.bytes == 0


def test_a_dropped_log_ends_its_readers(log):
    slow = Reader(log)
    fill(log.append)
    log.drop()
    with pytest.raises(SeqForgotten):
        slow.read()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock) -> GenerationStore:
    return GenerationStore(max_bytes=10_000, keep_s=600, clock=clock)


def add(store: GenerationStore, account: str, id: str, **how) -> GenerationLog:
    log = store.create((account, id))
    fill(lambda event: store.append(log, event), **how)
    return log


def test_the_oldest_ended_generations_of_that_account_go_first(store):
    kept = add(store, "rival", "g0")
    for number in range(9):
        add(store, "acme", f"g{number}", text="x" * 400)
    assert store.find(("acme", "g0")) is None
    assert store.find(("acme", "g8")) is not None
    assert store.find(("rival", "g0")) is kept
    assert 0 < store.dropped < 9
    assert store.bytes <= 10_000 + kept.bytes


def test_what_was_acknowledged_is_not_counted_as_dropped(store):
    for number in range(9):
        log = add(store, "acme", f"g{number}", text="x" * 400)
        store.acknowledge(log, log.last_seq)
    assert store.dropped == 0
    assert len(store) == 0
    assert store.bytes == 0


def test_running_generations_are_never_dropped_but_keep_others_out(store):
    running = add(store, "acme", "long", text="x" * 5000, finish=False)
    with pytest.raises(AccountLogsFull):
        store.create(("acme", "next"))
    assert store.create(("rival", "next"))
    assert [event.seq for event in running.events_after(0, 1 << 20)[0]] == [1, 2, 3, 4]
    store.acknowledge(running, 4)
    assert store.create(("acme", "next"))


def test_an_ended_generation_expires_and_a_running_one_does_not(store, clock):
    add(store, "acme", "ended")
    add(store, "rival", "running", finish=False)
    clock.now += 599
    store.expire()
    assert store.find(("acme", "ended")) is not None
    clock.now += 2
    store.expire()
    assert store.find(("acme", "ended")) is None
    assert store.find(("rival", "running")) is not None
    assert store.expired == 1


def test_an_id_can_be_used_again_after_it_was_forgotten(store):
    first = add(store, "acme", "g")
    store.acknowledge(first, first.last_seq)
    second = add(store, "acme", "g")
    assert store.find(("acme", "g")) is second


def test_a_refused_generation_leaves_nothing(store):
    log = store.create(("acme", "g"))
    reader = Reader(log)
    store.deliver([(log, Error("queue_full", "later"))])
    assert reader.woken == 1
    assert log.refused is not None
    assert store.find(("acme", "g")) is None
    assert len(store) == store.bytes == 0
