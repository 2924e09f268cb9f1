"""Where the last tokens of a sequence have occurred in it before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2
"""Tokens that have to be the same before what followed them is proposed: as many as possible, at least SHORTEST."""
CANDIDATES = 16
"""Earlier occurrences of the last SHORTEST tokens that are looked at, the latest first."""
_SHIFT = 32

NOWHERE = -1


class RepeatedTokens:
    """Index of one growing sequence: each new token costs one entry, each look-up at most CANDIDATES comparisons.

    Occurrences of the same two tokens are chained, the latest first, as in a compressor's window.
    """

    __slots__ = ("_earlier", "_latest")

    def __init__(self) -> None:
        self._latest: dict[int, int] = {}
        """Two tokens -> where their latest occurrence ends."""
        self._earlier = array("q", [NOWHERE])
        """Where the occurrence before the one that ends here ends, by position; the last token has no entry yet."""

    def continuation(self, tokens: Sequence[int], most: int) -> list[int]:
        """Up to ``most`` tokens that followed the latest of the longest earlier occurrences of the last ``tokens``.

        tokens: those of the last call, and those that came since. A text that repeats itself at the end is taken to do
        so for ever. Empty where the last SHORTEST tokens are new.
        """
        self._extend(tokens)
        end = self._occurrence(tokens)
        if end == NOWHERE:
            return []
        found: list[int] = []
        for place in range(end + 1, end + 1 + most):
            found.append(tokens[place] if place < len(tokens) else found[place - len(tokens)])
        return found

    def _extend(self, tokens: Sequence[int]) -> None:
        """Index what ends before the last token."""
        latest, earlier = self._latest, self._earlier
        for end in range(len(earlier), len(tokens) - 1):
            key = tokens[end - 1] << _SHIFT | tokens[end]
            earlier.append(latest.get(key, NOWHERE))
            latest[key] = end

    def _occurrence(self, tokens: Sequence[int]) -> int:
        """Where the best earlier occurrence of the last tokens ends."""
        last = len(tokens) - 1
        if last < SHORTEST:
            return NOWHERE
        end = self._latest.get(tokens[last - 1] << _SHIFT | tokens[last], NOWHERE)
        best, best_length = NOWHERE, 0
        for _ in range(CANDIDATES):
            if end == NOWHERE:
                break
            length = SHORTEST
            while length < LONGEST and end >= length and tokens[end - length] == tokens[last - length]:
                length += 1
            if length > best_length:
                best, best_length = end, length
                if length == LONGEST:
                    break
            end = self._earlier[end]
        return best
