"""How many drafts a sequence gets: by how many were right, and by what they cost."""

from __future__ import annotations

import pytest

from pagoda_inference.model.echo import EchoBackend
from pagoda_inference.rates import Rates
from pagoda_inference.speculation.costs import DraftCosts, measure_costs
from pagoda_inference.speculation.drafting import FIRST_GUESS, TRY_AGAIN, Drafting


def taught(*outcomes: bool) -> Drafting:
    drafting = Drafting()
    for right in outcomes:
        drafting.learn(1, int(right), 100)
    return drafting


def test_drafts_that_cost_nothing_are_all_made():
    assert taught(False, False).worthwhile(4, 0.0, 0.0, 200) == 4


def test_a_draft_is_made_where_what_it_saves_is_not_below_its_cost():
    assert Drafting().worthwhile(8, 1.0, FIRST_GUESS**3, 0) == 3
    assert Drafting().worthwhile(2, 1.0, FIRST_GUESS**3, 0) == 2


def test_right_drafts_make_more_of_them_and_wrong_ones_fewer():
    cost = FIRST_GUESS**2
    before = Drafting().worthwhile(8, 1.0, cost, 0)
    assert taught(True, True, True).worthwhile(8, 1.0, cost, 0) > before
    assert taught(False).worthwhile(8, 1.0, cost, 0) < before


def test_only_the_first_wrong_draft_of_a_run_says_anything():
    first, second = Drafting(), Drafting()
    first.learn(1, 0, 0)
    second.learn(4, 0, 0)
    assert first.share == second.share


def test_a_sequence_whose_drafts_never_pay_is_tried_again_now_and_then():
    drafting, tries, length = Drafting(), 0, 0
    for _ in range(40):
        drafting.learn(1, 0, 0)
    for length in range(1, 10 * TRY_AGAIN + 1):
        count = drafting.worthwhile(4, 1.0, 0.5, length)
        if count:
            assert count == 1
            tries += 1
            drafting.learn(count, 0, length)
    assert tries == 10


def test_a_sequence_that_begins_to_repeat_itself_is_drafted_for_again():
    drafting = taught(*[False] * 20)
    for place in range(10):
        drafting.learn(1, 1, 100 + place)
    assert drafting.worthwhile(4, 1.0, 0.5, 120) == 4


@pytest.mark.parametrize(("rows", "count"), [(1, 2), (2, 1), (64, 0)])
def test_a_large_batch_makes_drafts_worth_less(rows, count):
    costs = DraftCosts(base_s=10.0, row_s=1.0, draft_s=2.75)
    drafting = taught(False)
    drafting.share = 0.5
    assert drafting.worthwhile(4, costs.worth_s(rows), costs.cost_s(rows), 0 if count else 101) == count


def test_a_draft_models_steps_are_shared_by_the_batch():
    costs = DraftCosts(10.0, 1.0, 2.0, Rates(4.0, 0.5, 0.1))
    assert costs.cost_s(1) == 2.0 + 4.5
    assert costs.cost_s(4) == 2.0 + 1.5


def test_what_a_draft_costs_is_measured():
    class Slow(EchoBackend):
        clock = 0.0

        def run(self, chunks):
            Slow.clock += 1.0 + 0.25 * sum(len(chunk.drafts) for chunk in chunks)
            return super().run(chunks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pagoda_inference.speculation.costs.time.perf_counter", lambda: Slow.clock)
        costs = measure_costs(Slow(), Rates(0.9, 0.1, 0.05))
    assert (costs.base_s, costs.row_s, costs.draft_s) == (0.9, 0.1, 0.25)


def test_a_pool_of_a_single_slot_can_be_measured():
    assert measure_costs(EchoBackend(block_size=1, pool_tokens=1), Rates(0.9, 0.1, 0.05)).draft_s >= 0
