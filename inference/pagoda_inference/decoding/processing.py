"""Logits processing: penalties, biases and grammars on the rows of those that ask for them.

Everything is computed where the logits are. The host gives it the token counts and the grammars' bits, and on a GPU
waits for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pagoda_inference.decoding.answer_state import AnswerState
from pagoda_inference.decoding.grammar_error import GrammarError
from pagoda_inference.decoding.guide import allowed_tokens


def process(
    logits: torch.Tensor, answers: Sequence[AnswerState | None]
) -> tuple[torch.Tensor, dict[int, GrammarError]]:
    """Logits [N, V] that the next tokens are chosen from, float32, and the rows of which that cannot be done.

    answers: of each row, None where it stays as it is. ``logits`` are not changed; they are what is returned where no
    row asks for a change. Rows do not influence one another.
    """
    changing = [(row, answer) for row, answer in enumerate(answers) if answer and answer.processing.changes_logits]
    if not changing:
        return logits, {}
    processed = logits.to(torch.float32, copy=True)
    _penalise(processed, [(row, answer) for row, answer in changing if answer.counts is not None])
    _add_biases(processed, [(row, answer) for row, answer in changing if answer.processing.logit_bias])
    failed = _mask(processed, [(row, answer) for row, answer in changing if answer.guide is not None])
    return processed, failed


def _penalise(logits: torch.Tensor, answers: Sequence[tuple[int, AnswerState]]) -> None:
    """Repetition as transformers has it, then presence and frequency as OpenAI's interface documents them, in place."""
    places, numbers = [], []
    for row, answer in answers:
        assert answer.counts is not None
        ids, counts, asked = answer.counts.ids, answer.counts.counts, answer.processing
        places.append(ids + row * logits.shape[1])
        lowered = asked.presence_penalty * (counts > 0) + asked.frequency_penalty * counts
        numbers.append(np.stack([lowered, np.full(len(ids), asked.repetition_penalty)]).astype(np.float32))
    if not places or not sum(map(len, places)):
        return
    at = _on(logits.device, np.concatenate(places))
    lowered, divisors = _on(logits.device, np.concatenate(numbers, axis=1))
    flat = logits.view(-1)
    values = flat[at]
    flat[at] = torch.where(values > 0, values / divisors, values * divisors) - lowered


def _add_biases(logits: torch.Tensor, answers: Sequence[tuple[int, AnswerState]]) -> None:
    biases = [
        (row * logits.shape[1] + token, bias) for row, answer in answers for token, bias in answer.processing.logit_bias
    ]
    if biases:
        at = _on(logits.device, np.array([place for place, _ in biases], dtype=np.int64))
        logits.view(-1)[at] += _on(logits.device, np.array([bias for _, bias in biases], dtype=np.float32))


def _mask(logits: torch.Tensor, answers: Sequence[tuple[int, AnswerState]]) -> dict[int, GrammarError]:
    """-inf for what the grammars do not allow, in place."""
    if not answers:
        return {}
    rows = [row for row, _ in answers]
    bits, failed = allowed_tokens([answer.guide for _, answer in answers if answer.guide is not None])
    words = _on(logits.device, bits)
    allowed = (words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=logits.device)) & 1
    forbidden = allowed.view(len(rows), -1)[:, : logits.shape[1]] == 0
    if len(rows) == len(logits):
        logits.masked_fill_(forbidden, -torch.inf)
    else:
        at = _on(logits.device, np.array(rows, dtype=np.int64))
        logits[at] = logits[at].masked_fill(forbidden, -torch.inf)
    return {rows[place]: error for place, error in failed.items()}


def _on(device: torch.device, array: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
