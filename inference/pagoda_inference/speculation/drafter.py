"""Who guesses: what speculation needs from it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Protocol

from pagoda_inference.model.backend import Chunk
from pagoda_inference.scheduling.sequence import Sequence

MOST_FAILURES = 3
"""In a row, of a drafter or its model: then it is not asked any more."""


class Drafter(Protocol):
    """Used from the engine's thread only."""

    def propose(
        self, sequences: SequenceOf[Sequence], chunks: SequenceOf[Chunk], most: SequenceOf[int]
    ) -> list[SequenceOf[int]]:
        """For each sequence up to ``most`` tokens (at least 1) that may come next, none where there is no guess.

        chunks: what the step computes of each sequence, its newest token. Proposals are ids of the model's vocabulary.
        """
        ...
