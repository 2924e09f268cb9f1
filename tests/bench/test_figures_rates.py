"""The figures of sustained rates: small runs, in which what shares sustains more than what cannot."""

from __future__ import annotations

import itertools
import random

import pytest

from bench.figures import fig12, fig14, fig16, fig17, kept_rounds
from bench.figures.fig16 import PrefixCase
from bench.figures.fig17 import ChatbotCase
from bench.figures.figure import Figure, Sample
from bench.figures.sustained import Case, Found, search, search_all
from bench.report.page import Page
from bench.simulation.conversations import Limits, Turn, Users, rounds_of
from bench.simulation.loop import simulate
from bench.simulation.paged import PagedSystem
from bench.simulation.rounds import InRounds
from bench.simulation.settings import LLAMA, SMALL, System
from bench.simulation.work import StepWork
from bench.traces.laws import LONGEST_ROUND, Workload
from bench.workloads import random_tokens
from pagoda_inference.protocol import Account

SAMPLE = Sample(requests=120, warm_up=30, seconds=15, tolerance=0.1, quick=True, workers=2)


def rates(cases: dict[System, Case]) -> dict[System, float]:
    found = search_all(SAMPLE, list(cases.values()))
    return {system: found[case].rate for system, case in cases.items()}


def test_whoever_reserves_less_sustains_more() -> None:
    panel = fig12.PANELS[0]
    cases = {
        system: Case(SMALL, system, Workload.SHAREGPT, start)
        for system, start in zip(fig12.SYSTEMS, panel.starts, strict=True)
    }
    rate = rates(cases)
    order = [System.PAGED, System.ORACLE, System.POW2, System.MAX, System.STATIC]
    assert sorted(rate, key=lambda system: -rate[system]) == order
    assert rate[System.PAGED] > 1.3 * rate[System.ORACLE]
    assert rate[System.PAGED] > 2 * rate[System.MAX]


def test_a_found_rate_is_sustained_and_its_curve_has_it() -> None:
    found = search(SAMPLE, Case(SMALL, System.ORACLE, Workload.ALPACA, 20.0))
    latency = dict(found.points)
    assert latency[found.rate] <= 0.5
    assert all(seconds > 0.5 for rate, seconds in found.points if rate > found.rate * 1.1)
    assert found.running > 1
    assert found.saved == 0


def test_beams_share_most_and_samples_share_their_prompt() -> None:
    """With the same rate for each, so that a difference is that of the sharing."""
    saved = {}
    for name, samples, beams in (("one", 1, 0), ("samples", 4, 0), ("beams", 0, 4)):
        case = Case(SMALL, System.PAGED, Workload.ALPACA, 4.0, max(1, samples), beams)
        jobs = case.jobs(4.0, 80, SAMPLE)
        assert {job.width for job in jobs} == {max(1, samples, beams)}
        saved[name] = simulate(case.build(), case.setting.cost(), jobs).saved
    assert saved["one"] == 0
    assert 0.02 < saved["samples"] < saved["beams"] - 0.1


def test_several_answers_are_worth_more_where_they_share() -> None:
    cases = {
        system: Case(SMALL, system, Workload.ALPACA, start, beam_width=2)
        for system, start in zip(fig14.SYSTEMS, fig14.PANELS[4].starts, strict=True)
    }
    rate = rates(cases)
    assert rate[System.PAGED] > 1.1 * rate[System.ORACLE]
    assert rate[System.ORACLE] > rate[System.POW2] > rate[System.MAX]


def test_a_published_prefix_is_computed_once_and_taken_by_every_request() -> None:
    case = PrefixCase(LLAMA, System.PAGED, Workload.WMT16, 40.0, prefix=341)
    jobs, system = case.jobs(20.0, 60, SAMPLE), case.build()
    computed = []
    simulate(system, case.setting.cost(), jobs, observe=lambda now, work: computed.append(work.prompt_tokens))
    whole = 341 // 16 * 16
    assert all(job.cached == whole for job in jobs[5:]), [job.cached for job in jobs]
    rest = sum(job.prompt - job.cached for job in jobs)
    assert whole + rest == pytest.approx(sum(computed), rel=0.05)
    alone = PrefixCase(LLAMA, System.ORACLE, Workload.WMT16, 10.0, prefix=341)
    stored = alone.jobs(20.0, 60, SAMPLE)
    assert [job.prompt for job in stored] == [job.prompt for job in jobs]
    assert [job.output for job in stored] == [job.output for job in jobs]


def test_a_longer_shared_prefix_is_worth_more() -> None:
    ratio = {}
    for name, prefix in fig16.PREFIXES.items():
        cases: dict[System, Case] = {
            system: PrefixCase(LLAMA, system, Workload.WMT16, fig16.STARTS[name, system], prefix=prefix)
            for system in fig16.SYSTEMS
        }
        rate = rates(cases)
        ratio[name] = rate[System.PAGED] / rate[System.ORACLE]
    assert 1.2 < ratio["one_shot"] < ratio["five_shot"] - 0.7


def test_cut_prompts_make_the_three_reservations_alike() -> None:
    cut = ChatbotCase(SMALL, System.PAGED, Workload.CHATBOT, 1.0, cut=True)
    assert {job.prompt for job in cut.jobs(1.0, 50, SAMPLE)} == {LONGEST_ROUND}
    cases: dict[System, Case] = {
        system: ChatbotCase(SMALL, system, Workload.CHATBOT, fig17.STARTS[True][system], cut=True)
        for system in fig17.SYSTEMS
    }
    rate = rates(cases)
    others = [rate[system] for system in fig17.SYSTEMS[1:]]
    assert max(others) < 1.15 * min(others)
    assert rate[System.PAGED] > 1.3 * max(others)


# --- rounds -----------------------------------------------------------------------------------------------------------


def test_a_conversation_is_cut_to_its_end_or_is_over() -> None:
    said = [(10, 20), (30, 40), (50, 5000)]
    whole = rounds_of(said, Limits(prompt=2048, answer=100, both=2048))
    assert [(one.before, one.message, one.prompt, one.answer) for one in whole] == [
        (0, 10, 10, 20), (30, 30, 60, 40), (100, 50, 150, 100),
    ]  # fmt: skip
    assert [one.prompt for one in rounds_of(said, Limits(prompt=64, answer=100, both=2048))] == [10, 60, 64]
    assert len(rounds_of(said, Limits(prompt=2048, answer=2048, both=110))) == 2


def test_rounds_come_in_order_after_the_answers_and_begin_with_what_was_said() -> None:
    said = [rounds_of([(20, 40)] * 5, Limits())]
    turns, before = Users(said, 3).turns(rate=2.0, count=40, seed=4)
    prompts: dict[str, list[list[int]]] = {}
    system = PagedSystem(1024, keep=True)
    arrive = system.arrive

    def watched(job: Turn, now: float) -> None:
        assert job.arrival_s <= now
        assert job.tokens is not None
        prompts.setdefault(job.conversation, []).append(list(job.tokens))
        arrive(job, now)

    system.arrive = watched  # type: ignore[method-assign, assignment]
    simulate(InRounds(system, before), _Slow(), turns)
    ends: dict[str, float] = {}
    for turn in turns:
        assert turn.first_token_s is not None
        assert ends.get(turn.conversation, 0.0) <= turn.arrival_s < turn.first_token_s
        ends[turn.conversation] = turn.end_s or 0
    assert any(len(one) > 2 for one in prompts.values())
    for one in prompts.values():
        for earlier, later in itertools.pairwise(one):
            assert later[: len(earlier)] == earlier
            assert len(later) == len(earlier) + 60
    assert sum(turn.cached for turn in turns) > 0


class _Slow:
    """A tenth of a second for a step: answers are still under way when the next messages are due."""

    def seconds(self, work: StepWork) -> float:
        return 0.1


@pytest.mark.parametrize("keep", [True, False])
def test_what_is_kept_is_found_by_the_same_tenant_alone(keep: bool) -> None:
    """Two tenants say the same things: a round finds its own conversation, and a rival's never."""
    prompt = random_tokens(320, random.Random(3))
    system = PagedSystem(1024, keep=keep, accounts=[Account("acme"), Account("rival")])
    turns = [
        Turn(0, 0.0, 320, 32, tenant="acme", tokens=prompt, conversation="a", message=320),
        Turn(1, 100.0, 320, 32, tenant="rival", tokens=prompt, conversation="b", message=320),
        Turn(2, 200.0, 320, 32, tenant="acme", tokens=prompt, conversation="a", message=20),
    ]
    simulate(system, SMALL.cost(), turns)
    assert [turn.cached for turn in turns] == [0, 0, 304 if keep else 0]


def test_keeping_finds_whole_prompts_again_and_cut_ones_never() -> None:
    exchanges = [(60, 200)] * 9
    hit = {}
    for name, limits in (("whole", Limits()), ("cut", Limits(prompt=512, answer=512))):
        users = Users([rounds_of(exchanges[:7] if name == "whole" else exchanges, limits)], 4)
        turns, before = users.turns(rate=0.3, count=60, seed=2)
        simulate(InRounds(SMALL.paged(keep=True), before), SMALL.cost(), turns)
        cut = [turn for turn in turns if turn.prompt == 512]
        assert all(turn.cached == 0 for turn in cut)
        hit[name] = sum(turn.cached for turn in turns) / sum(turn.prompt for turn in turns)
        assert bool(cut) == (name == "cut")
    assert hit["whole"] > 0.6 > 0.3 > hit["cut"]


def test_conversations_that_never_fit_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="no conversation has a round"):
        Users([rounds_of([(3000, 10)], Limits())], 2).turns(1.0, 5, 1)


# --- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [fig16, fig17, kept_rounds])
def test_a_figure_has_its_numbers_and_plots(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Sample(requests=40, warm_up=10, seconds=5, tolerance=0.3, quick=True, workers=1)
    figures: list[Figure] = list(module.make(tiny))  # type: ignore[attr-defined]
    page = Page("figures", "of a test")
    for figure in figures:
        assert figure.text
        names = [number.name for number in figure.numbers]
        assert len(names) == len(set(names))
        assert any("ratio" in name for name in names)
        for svg, caption in figure.plots:
            page.plot(svg, caption)
    assert figures[0].plots


def test_a_rate_that_the_search_began_far_from_is_found() -> None:
    far, near = (search(SAMPLE, Case(SMALL, System.MAX, Workload.ALPACA, start)) for start in (1.0, 12.0))
    assert isinstance(far, Found)
    assert far.rate == pytest.approx(near.rate, rel=0.2)
