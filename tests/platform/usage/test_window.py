"""A sliding minute: what it lets through, over any 60 seconds, and how long it makes wait."""

from hypothesis import given
from hypothesis import strategies as st

from pagoda.usage.window import WINDOW_MS, Window

steps = st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 5)), min_size=1, max_size=60)


@given(steps, st.integers(1, 12))
def test_no_sixty_seconds_hold_more_than_the_limit(steps, limit):
    stored, now, admitted = [], 1_900_000_000_000, []
    for pause, tokens in steps:
        now += pause
        window = Window(stored, now)
        if window.sum("tokens") + tokens > limit:
            continue
        window.add(now, requests=1, tokens=tokens)
        stored = window.store()
        admitted.append((now, tokens))
        assert sum(each for then, each in admitted if then > now - WINDOW_MS) <= limit
    assert len(stored) <= 61


@given(steps, st.integers(0, 12))
def test_after_the_wait_there_is_room_and_not_before(steps, at_most):
    window, now = Window([], 0), 0
    for pause, tokens in steps:
        now += pause // 10
        window = Window(window.store(), now)
        window.add(now, requests=1, tokens=tokens)
    for kind in ("requests", "tokens"):
        wait = window.wait_ms(kind, at_most, now)
        assert wait <= WINDOW_MS
        assert Window(window.store(), now + wait).sum(kind) <= at_most
        if wait:
            assert Window(window.store(), now + wait - 1).sum(kind) > at_most


def test_a_correction_reaches_the_slot_it_belongs_to():
    window = Window([], 0)
    window.add(100, requests=1, tokens=50)
    window.add(2_000, requests=1, tokens=50)
    window.correct(100, tokens=-20)
    assert [slot.tokens for slot in window.slots] == [30, 50]
    late = Window(window.store(), 100 + WINDOW_MS)
    late.correct(100, tokens=+999)
    assert late.sum("tokens") == 50


def test_a_clock_that_is_behind_loses_nothing():
    window = Window([], 0)
    window.add(10_000, requests=1)
    window.add(9_000, requests=1)
    window.correct(9_000, requests=-1)
    assert window.sum("requests") == 1
