"""A machine that meets something rare gets further runs; what it can never meet is told."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.kv.happened import MOST_RUNS, check_all_happened

ONE_EXAMPLE = settings(max_examples=1, stateful_step_count=2, deadline=None)


class Steps(RuleBasedStateMachine):
    """Counts its steps."""

    fired: Counter[str]

    @rule()
    def step(self) -> None:
        self.fired["step"] += 1
        self.fired["late"] += self.fired["step"] > 10


@pytest.fixture
def fired() -> Counter[str]:
    Steps.fired = Counter()
    return Steps.fired


def test_no_run_where_everything_happened(fired):
    fired["step"] = 1
    check_all_happened(Steps, ONE_EXAMPLE, fired, ["step"])
    assert fired["step"] == 1


def test_runs_until_it_happened(fired):
    check_all_happened(Steps, ONE_EXAMPLE, fired, ["step", "late"])
    assert 10 < fired["step"] <= 2 * MOST_RUNS


def test_what_cannot_happen_is_told(fired):
    with pytest.raises(AssertionError, match=r"never happened: \['nothing'\] in \{'step'"):
        check_all_happened(Steps, ONE_EXAMPLE, fired, ["step", "nothing"])
