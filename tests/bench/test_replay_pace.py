"""A replay has the part of a trace and the pace that were asked for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.replay import benchmark
from bench.replay.benchmark import ReplayUnusable
from tests.bench.replaying import arena_file, asked


def test_a_traces_requests_are_cut_first_and_then_its_pace_is_set(tmp_path: Path) -> None:
    rows = [(float(number), ("acme", "rival")[number % 2], 5, 5) for number in range(10)]
    file = str(arena_file(tmp_path / "t.csv", *rows))
    rng = random.Random(1)
    fast = benchmark.trace_of(asked("--trace", file, "--requests", "5", "--speed", "2"), rng)
    assert [(each.at_s, each.client) for each in fast] == [
        (0.0, "acme"), (0.5, "rival"), (1.0, "acme"), (1.5, "rival"), (2.0, "acme"),
    ]  # fmt: skip
    short = benchmark.trace_of(asked("--trace", file, "--rate", "4", "--seconds", "1"), rng)
    assert [each.at_s for each in short] == [0.0, 0.25, 0.5, 0.75]


def test_a_rate_is_that_of_the_part_that_is_replayed(tmp_path: Path) -> None:
    """The trace begins with a quiet minute, and most of it comes after."""
    rows = [(0.0, "acme", 5, 5), (30.0, "rival", 5, 5), (60.0, "acme", 5, 5)]
    rows += [(60 + number / 100, "rival", 5, 5) for number in range(1, 500)]
    chosen = asked("--trace", str(arena_file(tmp_path / "t.csv", *rows)), "--rate", "0.5", "--seconds", "6")
    assert [each.at_s for each in benchmark.trace_of(chosen, random.Random(1))] == [0.0, 2.0, 4.0]


def test_a_trace_without_arrivals_needs_a_rate(tmp_path: Path) -> None:
    with pytest.raises(ReplayUnusable, match="give --rate"):
        benchmark.trace_of(asked("--trace", "law:alpaca"), random.Random(1))
    requests = benchmark.trace_of(asked("--trace", "law:alpaca", "--rate", "5", "--requests", "40"), random.Random(1))
    assert len(requests) == 40
    assert 0 < requests[0].at_s < requests[-1].at_s < 20


def beginning_at_once(path: Path) -> str:
    """A trace whose first three requests arrive together, and whose fourth four seconds later."""
    rows = [(0.0, "acme", 5, 5), (0.0, "rival", 6, 5), (0.0, "acme", 7, 5), (4.0, "rival", 8, 5)]
    return str(arena_file(path, *rows))


def test_a_part_that_arrives_at_once_is_of_a_trace_with_arrivals(tmp_path: Path) -> None:
    file = beginning_at_once(tmp_path / "t.csv")
    for pace in ((), ("--speed", "10")):
        part = benchmark.trace_of(asked("--trace", file, "--requests", "3", *pace), random.Random(1))
        assert [(each.at_s, each.prompt_tokens) for each in part] == [(0.0, 5), (0.0, 6), (0.0, 7)]


def test_a_rate_keeps_the_traces_pattern_and_is_poissons_where_the_part_has_none(tmp_path: Path) -> None:
    file = beginning_at_once(tmp_path / "t.csv")
    whole = benchmark.trace_of(asked("--trace", file, "--rate", "0.5"), random.Random(1))
    assert [each.at_s for each in whole] == [0.0, 0.0, 0.0, 6.0]
    for cut in (("--requests", "3"), ("--seconds", "6")):
        part = benchmark.trace_of(asked("--trace", file, "--rate", "0.5", *cut), random.Random(1))
        assert len({each.at_s for each in part}) == len(part) > 0
        assert part[0].at_s > 0


def test_a_time_in_which_nothing_arrives_is_refused() -> None:
    chosen = asked("--trace", "law:alpaca", "--rate", "0.001", "--seconds", "0.01")
    with pytest.raises(ReplayUnusable, match=r"no request arrives in the first 0\.01 s"):
        benchmark.trace_of(chosen, random.Random(1))


def test_a_context_without_room_for_a_prompt_and_an_answer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        asked("--context", "1")
    assert "expected 2 or more" in capsys.readouterr().err
    assert asked("--context", "2").context == 2
