"""Beam search driven without a pool, and the same by transformers' ``generate``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.beam_search import BeamSearch, Hypothesis
from pagoda_inference.decoding.candidates import most_probable
from pagoda_inference.model.backend import Backend, Candidates, Chunk, Result

NO_TOKEN = 1 << 20
"""The end of a model that has none: without one ``generate`` takes that of the configuration."""


@torch.inference_mode()
def search_naively(model: Any, prompt: list[int], search: BeamSearch) -> list[Hypothesis]:
    """Every beam computed from its first token at every step."""
    beams = [prompt]
    while True:
        logits = model(torch.tensor(beams), use_cache=False).logits[:, -1]
        found = most_probable(logits, [search.candidates_per_beam] * len(beams))
        picks = search.advance([row for row in found if row is not None])
        if not picks:
            return search.hypotheses()
        beams = [[*beams[parent], token] for parent, token in picks]


def candidates(result: Result) -> Candidates:
    assert isinstance(result, Candidates)
    return result


def search_through_blocks(backend: Backend, prompt: list[int], search: BeamSearch) -> list[Hypothesis]:
    """Beams with tables of their own: a pick copies its parent's blocks and computes one token."""
    size = backend.total_blocks // 8
    free = [list(range(size * number, size * (number + 1))) for number in range(8)]
    tables = [free.pop()]
    found = backend.run([Chunk(prompt, 0, tables[0], candidates=search.candidates_per_beam)])
    position = len(prompt)
    while picks := search.advance([candidates(result) for result in found]):
        children = [free.pop() for _ in picks]
        pairs = [
            pair
            for child, (parent, _) in zip(children, picks, strict=True)
            for pair in zip(tables[parent], child, strict=True)
        ]
        backend.copy_blocks(pairs)
        free += tables
        tables = children
        found = backend.run(
            [
                Chunk([token], position, table, candidates=search.candidates_per_beam)
                for table, (_, token) in zip(tables, picks, strict=True)
            ]
        )
        position += 1
    return search.hypotheses()


def generated(model: Any, prompt: list[int], eos_ids: list[int], **options: Any) -> list[tuple[list[int], float]]:
    """What ``generate`` returns, best first: tokens, the end included, and score."""
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        eos_token_id=eos_ids or [NO_TOKEN],
        pad_token_id=0,
        **options,
    )
    answers = []
    for tokens, indices, score in zip(output.sequences, output.beam_indices, output.sequences_scores, strict=True):
        length = int((indices >= 0).sum())
        answers.append((tokens[len(prompt) : len(prompt) + length].tolist(), float(score)))
    return answers


def compare_with_generate(
    search_with: Callable[[BeamSearch], list[Hypothesis]],
    model: Any,
    prompt: list[int],
    eos_ids: list[int],
    width: int,
    answers: int,
    *,
    max_tokens: int,
    **options: Any,
) -> list[Hypothesis]:
    """Our hypotheses, once they are found to be those of ``generate``: tokens, order and scores."""
    ours = search_with(BeamSearch(width, answers, eos_ids=eos_ids, max_tokens=max_tokens, **options))
    theirs = generated(
        model,
        prompt,
        eos_ids,
        num_beams=width,
        num_return_sequences=answers,
        max_new_tokens=max_tokens,
        **options,
    )
    assert [list(found.token_ids) for found in ours] == [tokens for tokens, _ in theirs]
    assert [found.score for found in ours] == pytest.approx([score for _, score in theirs], rel=1e-4, abs=1e-5)
    for found in ours:
        assert (found.reason == "stop") == (found.token_ids[-1] in eos_ids)
        assert found.reason == "stop" or len(found.token_ids) == max_tokens
    return ours
