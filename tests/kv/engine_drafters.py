"""Guesses at what the KV-echo model says next: mostly right, wrong in places that are always the same."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.echo import EchoBackend
from pagoda_inference.scheduling.sequence import Sequence
from tests.kv.engine_reference import Reference


def guess(token: int, position: int) -> int:
    """``token``, or another one at about every third position."""
    return token ^ 1 if position * 2654435761 >> 7 & 3 == 0 else token


class Oracle:
    """A Drafter that knows the answers."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    def propose(
        self, sequences: SequenceOf[Sequence], chunks: SequenceOf[Chunk], most: SequenceOf[int]
    ) -> list[SequenceOf[int]]:
        return [self._guess(sequence, count) for sequence, count in zip(sequences, most, strict=True)]

    def _guess(self, sequence: Sequence, most: int) -> list[int]:
        answer = self._reference.alone(sequence.tokens[: sequence.prompt_length], sequence.sampler)
        begin = sequence.output_length
        return [guess(answer.token(place), sequence.prompt_length + place) for place in range(begin, begin + most)]


class GuessingEcho(EchoBackend):
    """A draft model: the same entries as the KV-echo model's, and other tokens now and then."""

    def _next_token(self, chunk: Chunk, sampler: Sampler, drafts: int = 0) -> int:
        position = chunk.start + len(chunk.token_ids) + drafts
        return guess(super()._next_token(chunk, sampler, drafts), position)
