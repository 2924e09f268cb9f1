"""The benchmark of the tiers asks every mode the same, and its small pool holds what it says."""

from __future__ import annotations

import random

import pytest

from bench import stalls, tiers
from bench.daemon import Answer


class RecordingDaemon:
    """Answers with tokens of its own and remembers what it was asked."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.asked: list[tuple[str, list[int]]] = []

    async def answer(self, prompt: list[int], count: int, account: str) -> Answer:
        self.asked.append((account, list(prompt)))
        times = tuple(float(place + 1) for place in range(count))
        return Answer(1.0, float(count), count, len(prompt) // 2, (self.token,) * count, times)


@pytest.mark.parametrize("plan", [tiers.FULL, tiers.QUICK], ids=["full", "quick"])
def test_the_small_pool_holds_two_conversations_and_one_beside_the_steady_tenant(plan: tiers.Plan) -> None:
    blocks = plan.pool_tokens // tiers.BLOCK
    conversation = -(-plan.longest // tiers.BLOCK)
    assert plan.pool_tokens % tiers.BLOCK == 0
    assert blocks >= conversation + 1 + tiers.STEADY_BLOCKS
    assert 2 * conversation <= blocks < 3 * conversation < plan.conversations * conversation


async def test_all_modes_get_the_same_questions_and_go_on_from_their_own_answers() -> None:
    plan = tiers.Plan(conversations=3, turns=3, repeats=1, windows=1)
    daemons = {"recompute": RecordingDaemon(1), "host": RecordingDaemon(2)}
    measured = {mode: tiers.Turns() for mode in daemons}
    conversations = await tiers.converse(daemons, plan, measured, random.Random(0), 0)  # type: ignore[arg-type]
    own, other = (
        [[token for token in prompt if token > 2] for _, prompt in daemon.asked] for daemon in daemons.values()
    )
    assert own == other
    assert all(1 not in prompt for _, prompt in daemons["host"].asked)
    assert {len(conversation) for conversation in conversations["host"]} == {plan.longest}
    assert {turn: len(cached) for turn, cached in measured["host"].by_turn.items()} == {2: 3, 3: 3}


def test_gaps_between_tokens_are_what_a_percentile_is_of() -> None:
    assert stalls.Stalls([0.01] * 98 + [0.5, 0.6], copied=3, seconds=2.0).percentile_ms(99) == 600
