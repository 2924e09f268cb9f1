"""Prompt lookup: a sequence's next tokens may be those that followed when its last ones occurred before.

Answers repeat their prompts: quotes, lists, names, code that is edited. Costs no model, and next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from pagoda_inference.model.backend import Chunk
from pagoda_inference.scheduling.sequence import Sequence
from pagoda_inference.speculation.drafting import drafting_of
from pagoda_inference.speculation.repeated_tokens import RepeatedTokens


class PromptLookup:
    """A Drafter. Only a sequence's own tokens are looked at, never another's."""

    def propose(
        self, sequences: SequenceOf[Sequence], chunks: SequenceOf[Chunk], most: SequenceOf[int]
    ) -> list[SequenceOf[int]]:
        return [self._continuation(sequence, count) for sequence, count in zip(sequences, most, strict=True)]

    def _continuation(self, sequence: Sequence, most: int) -> list[int]:
        drafting = drafting_of(sequence)
        if drafting.repeated is None:
            drafting.repeated = RepeatedTokens()
        return drafting.repeated.continuation(sequence.tokens, most)
