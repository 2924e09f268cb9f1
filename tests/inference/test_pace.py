"""How long steps take is followed as they run, and bounds what the next one takes on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence as Chunks

import pytest

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Chunk, Result
from pagoda_inference.model.echo import EchoBackend
from pagoda_inference.pace import Pace
from pagoda_inference.rates import Rates, measure_rates
from pagoda_inference.scheduling.limits import LEAST_TOKENS, UNLIMITED, StepLimits
from pagoda_inference.scheduling.sequence import Request, Sequence
from pagoda_inference.scheduling.step import ScheduledChunk, Step

BASE, ROW, TOKEN = 0.02, 0.005, 0.0004
RATES = Rates(BASE, ROW, TOKEN)


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


def learnt(pace: Pace, slowness: float = 1.0, steps: int = 60) -> StepLimits:
    for rows, tokens in itertools.islice(itertools.cycle([(1, 0), (4, 64), (8, 0), (2, 200), (6, 16)]), steps):
        pace.learn(step(rows, tokens), slowness * seconds(rows, tokens))
    return pace.limits()


def rates(limits: StepLimits) -> tuple[float, float, float]:
    return limits.base_s, limits.row_s, limits.token_s


def test_the_rates_measured_at_start_are_followed_by_how_long_steps_take() -> None:
    pace = Pace(0.2, RATES)
    assert rates(pace.limits()) == (BASE, ROW, TOKEN)
    assert rates(learnt(pace, 2.0)) == pytest.approx((2 * BASE, 2 * ROW, 2 * TOKEN), rel=0.02)
    assert rates(learnt(pace, 1.0)) == pytest.approx((BASE, ROW, TOKEN), rel=0.02)


def test_nothing_is_limited_without_a_target() -> None:
    assert learnt(Pace(0.0, RATES)) == UNLIMITED


def test_a_step_that_something_else_held_up_is_soon_forgotten() -> None:
    pace = Pace(0.2, RATES)
    learnt(pace)
    pace.learn(step(4, 0), 30.0)
    assert pace.limits().base_s <= 1.5 * BASE
    assert rates(learnt(pace)) == pytest.approx((BASE, ROW, TOKEN), rel=0.05)


def test_steps_that_are_all_alike_do_not_unlearn_the_rest() -> None:
    pace = Pace(0.2, RATES)
    for _ in range(3000):
        pace.learn(step(4, 0), seconds(4, 0))
    assert rates(pace.limits()) == pytest.approx((BASE, ROW, TOKEN))


def test_a_target_below_what_any_step_takes_is_raised() -> None:
    assert Pace(0.01, RATES).limits().target_s == pytest.approx(3.5 * BASE)


def test_tenants_who_share_get_steps_of_one_and_a_half_short_prompts() -> None:
    pace = Pace(0.2, RATES)
    alone = BASE + ROW + 64 * TOKEN
    assert pace.limits(shared=True).target_s == pytest.approx(1.5 * alone)
    assert pace.limits().target_s == 0.2
    learnt(pace, 1.05)
    assert pace.limits(shared=True).target_s == pytest.approx(1.5 * alone), "what the waiting notice, load or no load"
    assert Pace(0.06, RATES).limits(shared=True).target_s == pytest.approx(3.5 * BASE), "never below what pays"
    assert Pace(0.072, RATES).limits(shared=True).target_s == 0.072, "never above what is allowed"
    assert Pace(0.0, RATES).limits(shared=True) == UNLIMITED


def test_rates_are_measured_on_the_backend_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Timed(EchoBackend):
        """Its steps take what the rates say, and each first one of its kind ten times that."""

        def run(self, chunks: Chunks[Chunk]) -> list[Result]:
            tokens = sum(len(chunk.token_ids) - 1 for chunk in chunks)
            ran = sum(size == (len(chunks), tokens) for size in sizes)
            sizes.append((len(chunks), tokens))
            clock[0] += seconds(len(chunks), tokens) * (1 if ran else 10)
            return super().run(chunks)

    sizes: list[tuple[int, int]] = []
    clock = [100.0]
    monkeypatch.setattr("pagoda_inference.rates.time.perf_counter", lambda: clock[0])
    measured = measure_rates(Timed(pool_tokens=2048))
    assert (measured.base_s, measured.row_s, measured.token_s) == pytest.approx((BASE, ROW, TOKEN))
    assert measured.prefill_tokens_per_s == pytest.approx(64 / (seconds(1, 63) + TOKEN))


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
