"""The most probable next tokens of each sequence, from its logits: what beam search chooses from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pagoda_inference.model.backend import Candidates


def most_probable(logits: torch.Tensor, counts: Sequence[int]) -> list[Candidates | None]:
    """The ``counts[row]`` most probable tokens of each row of ``logits`` [N, V], ties by the lower id.

    None where a row's logits are not numbers. Fewer than asked where the vocabulary, masked tokens (-inf) left out, has
    no more. Log probabilities are computed in float32, whatever the logits are. Rows do not influence one another.
    """
    return rank(logits.float().log_softmax(dim=-1), counts)


def rank(logprobs: torch.Tensor, counts: Sequence[int]) -> list[Candidates | None]:
    """``most_probable`` of rows of log probabilities [N, V]."""
    most = min(max(counts), logprobs.shape[-1])
    values, tokens = logprobs.topk(most, dim=-1)
    # topk may keep any of those equal to its last value: such rows are sorted whole, in the order of the ids.
    reaching = (logprobs >= values[:, -1:]).sum(dim=-1).tolist()
    rows = zip(values.tolist(), tokens.tolist(), reaching, counts, strict=True)
    chosen: list[Candidates | None] = []
    for row, (row_values, row_tokens, enough, count) in enumerate(rows):
        if math.isnan(row_values[0]):  # the greatest of all
            chosen.append(None)
            continue
        if enough > most:
            ordered, order = logprobs[row].sort(descending=True, stable=True)
            row_values, row_tokens = ordered[:most].tolist(), order[:most].tolist()
        chosen.append(_ranked(row_values, row_tokens, count))
    return chosen


def _ranked(values: Sequence[float], tokens: Sequence[int], count: int) -> Candidates:
    ranked = sorted((-value, token) for value, token in zip(values, tokens, strict=True) if value > -math.inf)[:count]
    return Candidates(tuple(token for _, token in ranked), tuple(-value for value, _ in ranked))
