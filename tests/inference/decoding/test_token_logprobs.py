"""Log probabilities that are told with tokens are those of the model's own distribution."""

from __future__ import annotations

import torch

from pagoda_inference.decoding.token_logprobs import begin_logprobs
from pagoda_inference.protocol import LEAST_LOGPROB


def test_they_are_of_the_token_and_of_the_most_probable_ones() -> None:
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(1))
    expected = logits.log_softmax(dim=-1)
    tokens = [17, 4, 299]
    for row, told in enumerate(begin_logprobs(logits, [0, 5, 2])(tokens)):
        assert told is not None
        assert (told.token_id, told.logprob) == (tokens[row], float(expected[row, tokens[row]]))
        best = expected[row].sort(descending=True, stable=True)
        count = (0, 5, 2)[row]
        assert told.top == tuple(zip(best.indices[:count].tolist(), best.values[:count].tolist(), strict=True))


def test_logits_may_change_between_the_step_and_its_tokens() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(2))
    [before] = begin_logprobs(logits, [3])([7])
    pending = begin_logprobs(logits, [3])
    logits.zero_()
    assert pending([7]) == [before]


def test_what_cannot_be_has_the_least_and_a_row_without_a_token_nothing() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0], [torch.nan, 0.0, 0.0]])
    impossible, nothing = begin_logprobs(logits, [3, 2])([1, None])
    assert impossible is not None
    assert impossible.logprob == LEAST_LOGPROB
    assert [token for token, _ in impossible.top] == [2, 0]
    assert nothing is None


def test_half_precision_logits_are_computed_in_single_precision() -> None:
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(3)).bfloat16()
    [told] = begin_logprobs(logits, [1])([5])
    assert told is not None
    assert told.logprob == float(logits.float().log_softmax(dim=-1)[0, 5])
