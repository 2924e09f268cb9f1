"""Following a grammar with one answer: which tokens may come next, and whether the answer is complete."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pagoda_inference.decoding.grammar_error import GrammarError, grammar_error

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

MOST_THREADS = 8


class Guide:
    """One answer's place in a grammar.

    matcher: at the beginning, and this guide's alone; of a vocabulary of ``vocabulary_size`` tokens.
    """

    __slots__ = ("_matcher", "vocabulary_size")

    def __init__(self, matcher: LLMatcher, vocabulary_size: int) -> None:
        self._matcher = matcher
        self.vocabulary_size = vocabulary_size

    def advance(self, tokens: Sequence[int]) -> None:
        """The answer goes on with ``tokens``. Raises GrammarError where the grammar does not."""
        if not self._matcher.consume_tokens(list(tokens)):
            raise grammar_error(self._matcher)

    @property
    def complete(self) -> bool:
        """Nothing can follow."""
        return bool(self._matcher.is_stopped())


def allowed_tokens(guides: Sequence[Guide]) -> tuple[np.ndarray, dict[int, GrammarError]]:
    """What may come next in each of N answers, and the answers of which that cannot be said any more.

    Returns one bit for each token of the vocabulary, the lowest of a word first: int32 [N, ceil(V / 32)], and errors by
    place in ``guides``. All are computed together, in threads of llguidance's own. Where an answer may end, the
    model's end tokens are among its tokens; where it must, they are all of them.
    """
    from llguidance.numpy import fill_next_token_bitmask, fill_next_token_bitmask_par

    words = -(-guides[0].vocabulary_size // 32)
    bits = np.zeros((len(guides), words), dtype=np.int32)
    matchers = [guide._matcher for guide in guides]
    if len(matchers) == 1:
        fill_next_token_bitmask(matchers[0], bits)
    else:
        fill_next_token_bitmask_par(_executor(), [(matcher, row) for row, matcher in enumerate(matchers)], bits)
    failed = {row: grammar_error(matcher) for row, matcher in enumerate(matchers) if matcher.is_error()}
    return bits, failed


@cache
def _executor() -> LLExecutor:
    from llguidance import LLExecutor

    return LLExecutor(num_threads=min(MOST_THREADS, os.cpu_count() or 1))
