"""Beam search takes, completes and ends as transformers' ``generate(num_beams=...)`` does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.beam_search import BeamSearch, EarlyStopping, Hypothesis
from pagoda_inference.model.backend import Candidates
from tests.inference.decoding.reference_beams import compare_with_generate, search_naively
from tests.inference.tiny_models import VOCABULARY, tiny_model

END = 9
EARLY_STOPPING: list[EarlyStopping] = [True, False, "never"]


def choice(**tokens: float) -> Candidates:
    """Candidates from probabilities: ``t3=0.5`` is token 3."""
    ranked = sorted(((int(name[1:]), p) for name, p in tokens.items()), key=lambda item: (-item[1], item[0]))
    return Candidates(tuple(token for token, _ in ranked), tuple(math.log(p) for _, p in ranked))


def test_the_best_continuations_of_all_beams_together_go_on() -> None:
    search = BeamSearch(2, max_tokens=5)
    assert search.advance([choice(t1=0.6, t2=0.3, t3=0.1)]) == [(0, 1), (0, 2)]
    assert search.advance([choice(t4=0.3, t5=0.3), choice(t6=0.9, t7=0.1)]) == [(1, 6), (0, 4)]
    assert search.advance([choice(t1=0.1), choice(t2=0.9)]) == [(1, 2), (0, 1)]
    assert [found.token_ids for found in search.hypotheses()] == [(1, 4, 2)]


def test_ties_go_to_the_better_beam_and_then_to_the_lower_token() -> None:
    search = BeamSearch(3, max_tokens=5)
    assert search.advance([choice(t5=0.2, t3=0.2, t1=0.2, t0=0.1)]) == [(0, 1), (0, 3), (0, 5)]
    assert search.advance([choice(t8=0.5, t7=0.5)] * 3) == [(0, 7), (0, 8), (1, 7)]


def test_an_end_completes_an_answer_only_among_the_best_and_never_takes_a_beams_place() -> None:
    search = BeamSearch(2, 2, eos_ids=[END], max_tokens=9)
    assert search.advance([choice(t9=0.5, t1=0.3, t2=0.2)]) == [(0, 1), (0, 2)]
    assert search.advance([choice(t1=0.9, t2=0.06), choice(t3=0.9, t9=0.1)]) == [(0, 1), (1, 3)], "an end in place 4"
    assert [(found.token_ids, found.reason) for found in search.hypotheses()] == [((1, 1), "length"), ((9,), "stop")]


def test_the_length_of_a_score_counts_the_end() -> None:
    search = BeamSearch(1, length_penalty=2.0, early_stopping=True, eos_ids=[END], max_tokens=9)
    assert search.advance([choice(t1=0.5, t2=0.1)]) == [(0, 1)]
    assert search.advance([choice(t9=0.5, t2=0.1)]) == []
    [found] = search.hypotheses()
    assert found == Hypothesis((1, END), found.score, "stop")
    assert found.score == pytest.approx(math.log(0.25) / 2**2)


def test_early_stopping_ends_the_search_when_enough_are_complete() -> None:
    steps = [[choice(t9=0.5, t1=0.4, t2=0.05)], [choice(t9=0.9, t3=0.1), choice(t4=0.01, t5=0.01)]]
    lengths = {}
    for early in EARLY_STOPPING:
        search = BeamSearch(2, early_stopping=early, eos_ids=[END], max_tokens=50, length_penalty=3.0)
        assert search.advance(steps[0])
        lengths[early] = len(search.advance(steps[1]))
        assert search.over == (lengths[early] == 0)
    assert lengths == {True: 0, False: 2, "never": 2}


def test_false_compares_at_the_present_length_and_never_at_the_greatest() -> None:
    """The open beam (0.2) is worse than both complete answers as it stands, and could be better at 50 tokens."""
    lengths = {}
    for early in (False, "never"):
        search = BeamSearch(1, early_stopping=early, eos_ids=[END], max_tokens=50)
        lengths[early] = len(search.advance([choice(t9=0.5, t1=0.2)]))
    assert lengths == {False: 0, "never": 1}


def test_at_max_tokens_the_best_beams_are_answers() -> None:
    search = BeamSearch(2, 2, eos_ids=[END], max_tokens=2)
    search.advance([choice(t1=0.6, t2=0.3, t3=0.1)])
    assert search.advance([choice(t4=0.5, t9=0.4), choice(t5=0.2, t6=0.1)]) == []
    assert [(found.token_ids, found.reason) for found in search.hypotheses()] == [((1, 4), "length"), ((1, 9), "stop")]


def test_a_search_with_nothing_left_but_ends_is_over() -> None:
    search = BeamSearch(2, 2, eos_ids=[END], max_tokens=9)
    assert search.advance([choice(t9=1.0)]) == []
    assert search.live == 0
    assert [found.token_ids for found in search.hypotheses()] == [(9,)]


def test_more_beams_than_continuations_are_filled_up_later() -> None:
    search = BeamSearch(3, max_tokens=9)
    assert search.advance([choice(t1=1.0)]) == [(0, 1)]
    assert search.live == 1
    assert len(search.advance([choice(t1=0.5, t2=0.4, t3=0.1)])) == 3


def test_enough_candidates_are_asked_for_to_have_others_beside_every_end() -> None:
    assert BeamSearch(4, max_tokens=1, eos_ids=[1, 2]).candidates_per_beam == 8
    assert BeamSearch(1, max_tokens=1, eos_ids=[1, 2, 3]).candidates_per_beam == 4


def test_a_search_that_is_cut_short_has_its_open_beams_for_answers() -> None:
    search = BeamSearch(2, 2, eos_ids=[END], max_tokens=9)
    assert search.hypotheses() == []
    search.advance([choice(t1=0.6, t2=0.3)])
    assert [(found.token_ids, found.reason) for found in search.hypotheses()] == [((1,), "length"), ((2,), "length")]
    assert search.live == 2, "and can go on"


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 0},
        {"answers": 3},
        {"answers": 0},
        {"length_penalty": math.nan},
        {"length_penalty": 9},
        {"max_tokens": 0},
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        BeamSearch(**{"width": 2, "max_tokens": 5, **wrong})


def test_candidates_of_another_number_of_beams_are_refused() -> None:
    search = BeamSearch(2, max_tokens=1)
    with pytest.raises(ValueError, match="1 are live"):
        search.advance([choice(t1=0.5)] * 2)
    search.advance([choice(t1=0.5, t2=0.5)])
    with pytest.raises(ValueError, match="0 are live"):
        search.advance([])


@pytest.mark.parametrize("penalty", [1.0, 0.0, -1.0, 2.0])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_hypotheses_of_tiny_models_are_those_of_generate(one_thread: None, width: int, penalty: float) -> None:
    reasons = set()
    for number, early in enumerate(EARLY_STOPPING):
        model = flat_model(("llama", "qwen2", "gpt2")[(number + width) % 3])
        for eos_ids in (list(range(0, VOCABULARY, 3)), [2, 40], []):
            prompt = [5 + number, 17, 30 + width, 44, 91]
            options = {"length_penalty": penalty, "early_stopping": early, "max_tokens": 10}
            search = partial(search_naively, model, prompt)
            found = compare_with_generate(search, model, prompt, eos_ids, width, 1 + number % width, **options)
            reasons |= {hypothesis.reason for hypothesis in found}
    assert reasons == {"stop", "length"}


@pytest.fixture
def one_thread() -> Iterator[None]:
    """More threads than free cores make tiny models slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def flat_model(family: str) -> Any:
    """With less certain choices, so that beams compete and ends are among the best."""
    model = tiny_model(family)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(0.3)
    return model
