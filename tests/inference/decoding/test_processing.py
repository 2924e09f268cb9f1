"""Penalties, biases and masks change the rows that ask for them, by their definitions, and nothing else."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

from pagoda_inference.decoding.answer_state import AnswerState, Processing, ProcessingSampler, answer_of
from pagoda_inference.decoding.processing import process
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.decoding.token_counts import TokenCounts

VOCABULARY = 40
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=30)
PENALTIES = st.floats(-2, 2, width=32)


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return 4 * torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def state(processing: Processing, prompt: list[int], answer: list[int]) -> AnswerState:
    state = AnswerState(processing, prompt)
    state.catch_up(prompt + answer)
    return state


@given(TOKENS, TOKENS, st.floats(0.25, 4, width=32))
def test_the_repetition_penalty_is_that_of_transformers(prompt: list[int], answer: list[int], penalty: float) -> None:
    given_logits = logits(1)
    [row], failed = process(given_logits, [state(Processing(repetition_penalty=penalty), prompt, answer)])
    assert failed == {}
    tokens = torch.tensor([prompt + answer], dtype=torch.int64)
    expected = given_logits.clone()
    if prompt + answer:
        expected = RepetitionPenaltyLogitsProcessor(penalty)(tokens, expected)
    assert row.tolist() == pytest.approx(expected[0].tolist(), rel=1e-6)


@given(TOKENS, TOKENS, PENALTIES, PENALTIES, st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-100, 100)))
def test_presence_and_frequency_are_of_the_answer_and_biases_come_on_top(
    prompt: list[int], answer: list[int], presence: float, frequency: float, biases: dict[int, float]
) -> None:
    asked = Processing(presence_penalty=presence, frequency_penalty=frequency, logit_bias=tuple(biases.items()))
    given_logits = logits(1)
    [row], _ = process(given_logits, [state(asked, prompt, answer)])
    counts = Counter(answer)
    expected = [
        logit - presence * (counts[token] > 0) - frequency * counts[token] + biases.get(token, 0)
        for token, logit in enumerate(given_logits[0].tolist())
    ]
    assert row.tolist() == pytest.approx(expected, abs=1e-4)


@given(st.lists(st.tuples(TOKENS, TOKENS, PENALTIES), min_size=2, max_size=5), st.sampled_from(["float32", "bfloat16"]))
def test_a_row_is_the_same_whoever_is_beside_it(rows: list[tuple[list[int], list[int], float]], dtype: str) -> None:
    together = logits(len(rows) + 1).to(getattr(torch, dtype))
    before = together.clone()
    states = [
        state(Processing(frequency_penalty=penalty, repetition_penalty=1.5), prompt, answer)
        for prompt, answer, penalty in rows
    ]
    processed, _ = process(together, [None, *states])
    assert processed.dtype == torch.float32
    assert torch.equal(together, before)
    assert torch.equal(processed[0], before[0].float())
    for index, each in enumerate(states, start=1):
        assert torch.equal(processed[index], process(together[index : index + 1], [each])[0][0])


def test_nothing_is_copied_where_nobody_asks_for_a_change() -> None:
    rows = logits(2)
    assert process(rows, [None, state(Processing(logprobs=3), [1], [2])])[0] is rows


@given(TOKENS, TOKENS, st.data())
def test_a_state_is_the_same_by_whatever_steps_it_came_there(prompt: list[int], answer: list[int], data) -> None:
    asked = Processing(presence_penalty=0.5, repetition_penalty=1.2)
    tokens = prompt + answer
    stepwise = AnswerState(asked, prompt)
    for length in data.draw(st.lists(st.integers(len(prompt), len(tokens)), max_size=6)):
        stepwise.catch_up(tokens[:length])
        assert stepwise.length == length
    stepwise.catch_up(tokens)
    assert counts(stepwise) == counts(state(asked, prompt, answer))
    assert counts(stepwise) == {token: tokens.count(token) - prompt.count(token) for token in tokens} or prompt


def counts(of: AnswerState) -> dict[int, float]:
    assert of.counts is not None
    return dict(zip(of.counts.ids.tolist(), of.counts.counts.tolist(), strict=True))


@given(st.lists(st.integers(0, 500), max_size=400))
def test_counts_are_those_of_the_tokens(tokens: list[int]) -> None:
    kept = TokenCounts()
    for token in tokens:
        kept.add(token)
    assert dict(zip(kept.ids.tolist(), kept.counts.tolist(), strict=True)) == Counter(tokens)
    assert kept.counts.dtype == np.float32


def test_every_answer_has_a_state_of_its_own_and_the_streams_of_a_plain_sampler() -> None:
    plain = Sampler(0.7, 0.9, seed=5)
    sampler = ProcessingSampler.of(plain, AnswerState(Processing(frequency_penalty=1.0), [1, 2]))
    assert sampler.stream(0) is sampler
    other = sampler.stream(2)
    assert [other.uniform(place) for place in range(5)] == [plain.stream(2).uniform(place) for place in range(5)]
    first, second = answer_of(sampler), answer_of(other)
    assert first is not None
    assert second is not None
    first.catch_up([1, 2, 7])
    assert (first.length, second.length) == (3, 2)
    assert answer_of(plain) is None
