"""The copy thread runs jobs in order, and only poll tells of it."""

from __future__ import annotations

import threading

from pagoda_inference.kv.tiers.copier import Copier, ManualCopier


def test_jobs_run_in_order_on_another_thread_and_poll_tells_in_order() -> None:
    notified = threading.Semaphore(0)
    copier = Copier(lambda: notified.release())
    ran: list[tuple[int, int]] = []
    told: list[int] = []
    for number in range(20):

        def work(number: int = number) -> None:
            ran.append((number, threading.get_ident()))

        def done(error: BaseException | None, number: int = number) -> None:
            told.append(number)

        copier.submit(work, done)
    assert copier.wait(10)
    assert told == []
    copier.poll()
    assert told == [number for number, _ in ran] == list(range(20))
    assert threading.get_ident() not in {thread for _, thread in ran}
    assert all(notified.acquire(timeout=10) for _ in range(20))
    copier.close()


def test_what_a_job_raises_reaches_its_done_and_no_other() -> None:
    copier = Copier()
    outcomes: list[BaseException | None] = []
    copier.submit(lambda: {}["missing"], outcomes.append)
    copier.submit(lambda: None, outcomes.append)
    copier.close()
    copier.poll()
    assert isinstance(outcomes[0], KeyError)
    assert outcomes[1] is None


def test_waiting_ends_with_the_time_while_a_job_takes_longer() -> None:
    copier, gate = Copier(), threading.Event()
    copier.submit(lambda: gate.wait(10) and None, lambda _: None)
    assert not copier.wait(0.01)
    gate.set()
    assert copier.wait(10)
    copier.close()


def test_closing_runs_what_waits_and_a_later_job_still_runs() -> None:
    copier, gate = Copier(), threading.Event()
    ran: list[str] = []
    copier.submit(lambda: gate.wait(10) and None, lambda _: copier.submit(lambda: ran.append("later"), lambda _: None))
    copier.submit(lambda: ran.append("waiting"), lambda _: None)
    gate.set()
    copier.close()
    copier.poll()
    copier.close()
    copier.poll()
    assert ran == ["waiting", "later"]
    assert copier.in_flight == 0


def test_a_done_that_raises_loses_no_other() -> None:
    copier = ManualCopier()
    told: list[str] = []
    copier.submit(lambda: None, lambda _: {}["missing"])
    copier.submit(lambda: None, lambda _: told.append("second"))
    copier.release()
    try:
        copier.poll()
    except KeyError:
        told.append("raised")
    copier.poll()
    assert told == ["raised", "second"]
