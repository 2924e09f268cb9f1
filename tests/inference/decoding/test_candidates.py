"""The candidates of a beam come from its own logits alone, in one order, in single precision."""

from __future__ import annotations

import pytest
import torch

from pagoda_inference.decoding.candidates import most_probable
from pagoda_inference.model.backend import Candidates


def candidates(logits: torch.Tensor, counts: list[int]) -> list[Candidates]:
    found = most_probable(logits, counts)
    assert all(row is not None for row in found)
    return [row for row in found if row is not None]


def test_the_most_probable_tokens_come_in_order_with_their_log_probabilities() -> None:
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(1))
    expected = logits.log_softmax(dim=-1)
    for row, found in enumerate(candidates(logits, [4, 1, 9])):
        count = (4, 1, 9)[row]
        assert list(found.token_ids) == expected[row].argsort(descending=True)[:count].tolist()
        assert list(found.logprobs) == expected[row].sort(descending=True).values[:count].tolist()


def test_of_equal_tokens_the_lower_ids_are_taken_in_order() -> None:
    logits = torch.zeros(2, 1000)
    logits[0, 700] = 1.0
    logits[1, [900, 30, 400]] = 1.0
    first, second = candidates(logits, [5, 5])
    assert first.token_ids == (700, 0, 1, 2, 3)
    assert second.token_ids == (30, 400, 900, 0, 1)


def test_a_rivals_row_changes_nothing() -> None:
    logits = torch.randn(6, 300, generator=torch.Generator().manual_seed(2))
    assert candidates(logits, [4, 8, 2, 4, 16, 1])[3] == candidates(logits[3:4], [4])[0]


def test_log_probabilities_of_a_half_precision_model_are_single_precision() -> None:
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(3)).bfloat16()
    [found] = candidates(logits, [3])
    assert list(found.logprobs) == logits.float().log_softmax(dim=-1)[0].topk(3).values.tolist()


def test_masked_tokens_are_no_candidates_and_a_small_vocabulary_gives_fewer() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0, -torch.inf], [4.0, 3.0, 2.0, 1.0]])
    assert [found.token_ids for found in candidates(logits, [4, 99])] == [(2, 0), (0, 1, 2, 3)]


@pytest.mark.parametrize("bad", [[float("nan"), 0.0], [float("inf"), 0.0], [-float("inf")] * 2], ids=str)
def test_logits_that_are_not_numbers_fail_their_row_alone(bad: list[float]) -> None:
    found = most_probable(torch.tensor([[0.0, 1.0], bad, [2.0, 1.0]]), [1, 1, 1])
    assert [row and row.token_ids for row in found] == [(1,), None, (0,)]
