"""What a step's chunks ask for is taken from their logits: tokens, or the candidates of a beam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, islice

import torch

from pagoda_inference.decoding.answer_state import AnswerState, answer_of
from pagoda_inference.decoding.candidates import most_probable
from pagoda_inference.decoding.processing import process
from pagoda_inference.decoding.sampling import Sampler, sample
from pagoda_inference.decoding.token_logprobs import begin_logprobs
from pagoda_inference.model.backend import Chunk, ChunkError, Result, accept

Tokens = Callable[[], list[int | None]]
"""Waits for the sampled tokens, None for a row without numbers."""
Draw = Callable[[torch.Tensor, Sequence[Sampler], Sequence[int]], Tokens]
"""Begins to sample a token of each row of logits [N, V], for its position."""


def draw_now(logits: torch.Tensor, samplers: Sequence[Sampler], positions: Sequence[int]) -> Tokens:
    """Waits for the logits, and samples at once."""
    tokens = sample(logits, samplers, positions)
    return lambda: tokens


def choose(logits: torch.Tensor, chunks: Sequence[Chunk]) -> list[Result]:
    """What each chunk asks for after its last token, from its row of ``logits`` [N, V]; None for a row without numbers.

    A chunk with forks takes one token for each sampler, all from the same row; one with drafts has a row more for each.
    """
    return begin_to_choose(logits, chunks, draw_now)()


@torch.inference_mode()
def begin_to_choose(logits: torch.Tensor, chunks: Sequence[Chunk], draw: Draw) -> Callable[[], list[Result]]:
    """As ``choose``, in two parts: ``draw`` has been called when this returns, and what it gives is waited for later.

    The logits must stay as they are until then only where a chunk asks for candidates. A chunk whose grammar fails has
    a ChunkError. Log probabilities are told to the states of their answers.
    """
    first = list(accumulate((1 + len(chunk.drafts) for chunk in chunks), initial=0))
    sampling = [index for index, chunk in enumerate(chunks) if not chunk.candidates and chunk.sampler is not None]
    draws = [(index, place, sampler) for index in sampling for place, sampler in _draws(chunks[index])]
    rows = [first[index] + place for index, place, _ in draws]
    positions = [chunks[index].start + len(chunks[index].token_ids) + place for index, place, _ in draws]
    samplers = [sampler for *_, sampler in draws]
    given = _rows(logits, rows)
    answers = [answer_of(sampler) for sampler in samplers]
    processed, failed = _process(given, answers, positions) if any(answers) else (given, {})
    tell = _begin_to_tell(given, answers, positions)
    tokens = draw(processed, samplers, positions) if draws else list

    @torch.inference_mode()
    def finish() -> list[Result]:
        results: list[Result] = [None] * len(chunks)
        searching = [index for index, chunk in enumerate(chunks) if chunk.candidates]
        if searching:
            counts = [chunks[index].candidates for index in searching]
            found = most_probable(_rows(logits, [first[index] for index in searching]), counts)
            for index, candidates in zip(searching, found, strict=True):
                results[index] = candidates
        chosen = tokens()
        tell(chosen)
        drawn = iter(chosen)
        for index in sampling:
            chunk = chunks[index]
            results[index] = _result(chunk, tuple(islice(drawn, 1 + len(chunk.drafts) + len(chunk.forks))))
        for place, error in failed.items():
            results[draws[place][0]] = _failure(error)
        return results

    return finish


def _process(
    logits: torch.Tensor, answers: Sequence[AnswerState | None], positions: Sequence[int]
) -> tuple[torch.Tensor, dict[int, Exception]]:
    """``process``; a row whose answer's state is of another position fails, too."""
    processed, errors = process(logits, answers)
    failed: dict[int, Exception] = dict(errors)
    for row, (answer, position) in enumerate(zip(answers, positions, strict=True)):
        if answer is not None and answer.length != position:
            failed[row] = RuntimeError(f"{position} tokens, but {answer.length} are known to what they depend on")
    return processed, failed


def _begin_to_tell(
    logits: torch.Tensor, answers: Sequence[AnswerState | None], positions: Sequence[int]
) -> Callable[[Sequence[int | None]], None]:
    """Tells the answers that ask for it the log probabilities of the tokens chosen from their rows."""
    asking = [(row, answer) for row, answer in enumerate(answers) if answer and answer.processing.logprobs is not None]
    if not asking:
        return lambda tokens: None
    logprobs = begin_logprobs(
        _rows(logits, [row for row, _ in asking]), [answer.processing.logprobs or 0 for _, answer in asking]
    )

    def tell(tokens: Sequence[int | None]) -> None:
        told = logprobs([tokens[row] for row, _ in asking])
        for (row, answer), found in zip(asking, told, strict=True):
            if found is not None:
                answer.tell(positions[row], found)

    return tell


def _failure(error: Exception) -> ChunkError:
    failure = ChunkError(str(error))
    failure.__cause__ = error
    return failure


def _draws(chunk: Chunk) -> list[tuple[int, Sampler]]:
    """(drafts before it, sampler) of every token that is chosen for a chunk."""
    assert chunk.sampler is not None
    if chunk.drafts:
        return [(place, chunk.sampler) for place in range(len(chunk.drafts) + 1)]
    return [(0, sampler) for sampler in (chunk.sampler, *chunk.forks)]


def _result(chunk: Chunk, chosen: tuple[int | None, ...]) -> Result:
    """Of the tokens that were drawn for a chunk."""
    if chunk.drafts:
        return accept(chunk.drafts, chosen)
    usable = tuple(token for token in chosen if token is not None)
    if len(usable) < len(chosen):
        return None
    return usable if chunk.forks else usable[0]


def _rows(logits: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """``logits[rows]``, without a copy where they are all of them."""
    return logits if list(rows) == list(range(len(logits))) else logits[list(rows)]
