"""How long steps take is learnt as they run, and bounds what the next one takes on."""

from __future__ import annotations

import itertools

import pytest

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.pace import FIRST_STEPS, Pace
from pagoda_inference.scheduling.limits import LEAST_TOKENS, UNLIMITED, StepLimits
from pagoda_inference.scheduling.sequence import Request, Sequence
from pagoda_inference.scheduling.step import ScheduledChunk, Step

BASE, ROW, TOKEN = 0.02, 0.005, 0.0004


def step(rows: int, tokens: int) -> Step:
    """So many sequences that decode, and so many tokens of a prompt beside them; two tenants' by turns."""
    chunks = [ScheduledChunk(sequence(number), 0, 1, True) for number in range(rows)]
    return Step(chunks=[*chunks, *([ScheduledChunk(sequence(rows), 0, tokens, False)] if tokens else [])])


def sequence(number: int) -> Sequence:
    account = ("acme", "rival")[number % 2]
    request = Request.create(
        id=str(number), account=account, scope=account, lineage="", request_class="interactive",
        arrival=0.0, max_tokens=1, prompt=[1], sampler=Sampler(),
    )  # fmt: skip
    return request.sequences[0]


def seconds(rows: int, tokens: int) -> float:
    return BASE + ROW * rows + TOKEN * tokens


def learnt(pace: Pace, steps: int = 60) -> StepLimits:
    for rows, tokens in itertools.islice(itertools.cycle([(1, 0), (4, 64), (8, 0), (2, 200), (6, 16)]), steps):
        pace.learn(step(rows, tokens), seconds(rows, tokens))
    return pace.limits()


def test_what_a_step_takes_is_learnt() -> None:
    limits = learnt(Pace(0.2))
    assert limits.target_s == 0.2
    assert (limits.base_s, limits.row_s, limits.token_s) == pytest.approx((BASE, ROW, TOKEN), rel=0.02)


def test_nothing_is_limited_before_steps_were_seen_or_without_a_target() -> None:
    pace = Pace(0.2)
    assert pace.limits() == UNLIMITED
    assert learnt(pace, FIRST_STEPS - 1) == UNLIMITED
    assert learnt(pace, 1) != UNLIMITED
    assert learnt(Pace(0.0)) == UNLIMITED


def test_a_step_that_something_else_held_up_is_soon_forgotten() -> None:
    pace = Pace(0.2)
    learnt(pace)
    pace.learn(step(4, 0), 30.0)
    held_up = pace.limits()
    assert held_up.base_s + 4 * held_up.row_s <= 3 * seconds(4, 0) + 1e-6
    after = learnt(pace, 100)
    assert (after.base_s, after.row_s, after.token_s) == pytest.approx((BASE, ROW, TOKEN), rel=0.1)


def test_steps_that_are_all_alike_do_not_unlearn_the_rest() -> None:
    pace = Pace(0.2)
    learnt(pace)
    for _ in range(3000):
        pace.learn(step(4, 0), seconds(4, 0))
    limits = pace.limits()
    assert limits.base_s + 4 * limits.row_s == pytest.approx(seconds(4, 0), rel=0.01)
    relearnt = learnt(pace)
    assert (relearnt.base_s, relearnt.row_s, relearnt.token_s) == pytest.approx((BASE, ROW, TOKEN), rel=0.1)


def test_decodes_leave_a_third_of_the_step_to_prompts() -> None:
    limits = StepLimits(0.2, BASE, ROW, TOKEN)
    assert limits.decodes(prompts=False) == 36
    rows = limits.decodes(prompts=True)
    assert rows == 22
    assert seconds(rows, limits.tokens(rows, 512)) <= 0.2
    assert limits.tokens(rows, 512) >= 0.2 / 3 / TOKEN


def test_a_first_prompt_leaves_decodes_half_of_the_step_less_what_it_takes() -> None:
    limits = StepLimits(0.2, BASE, ROW, TOKEN)
    assert limits.decodes_beside_first(100) == 8
    assert limits.decodes_beside_first(400) == 0


def test_somebody_always_gets_on() -> None:
    slow = StepLimits(0.2, 0.5, 0.3, 0.1)
    assert slow.decodes(prompts=True) == slow.decodes(prompts=False) == 1
    assert slow.tokens(1, 512) == LEAST_TOKENS
    assert slow.tokens(1, 4) == 4, "never more than the budget"


def test_without_a_target_all_may_run() -> None:
    assert UNLIMITED.decodes(prompts=True) is None
    assert UNLIMITED.decodes_beside_first(1000) is None
    assert UNLIMITED.tokens(64, 448) == 448
