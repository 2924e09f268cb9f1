"""What a random machine is to meet: what never happened was not tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

MOST_RUNS = 8
"""A run misses something rare once in a while; so many in a row do so only where it cannot happen any more."""


def check_all_happened(
    machine: type[RuleBasedStateMachine], machine_settings: settings, fired: Counter[str], wanted: Iterable[str]
) -> None:
    """Every kind of ``wanted`` was counted in ``fired``, after further runs of ``machine`` if its first missed some.

    Further runs draw new examples: how often something rare happens in one run is chance, whether it can is not.
    Raises AssertionError, also for whatever a further run finds wrong.
    """
    wanted = list(wanted)
    anew = settings(machine_settings, derandomize=False)
    for _ in range(MOST_RUNS):
        if all(fired[kind] for kind in wanted):
            return
        run_state_machine_as_test(machine, settings=anew)
    missing = [kind for kind in wanted if not fired[kind]]
    assert not missing, f"never happened: {missing} in {dict(fired)}"
