"""How often each token occurs in an answer, kept up token by token, as arrays that penalties are computed from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

_FIRST_ROOM = 64


class TokenCounts:
    """Counts of one answer. ``prompt``: tokens that are listed though the answer has none of them (yet)."""

    __slots__ = ("_counts", "_ids", "_places")

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        self._places = {token: place for place, token in enumerate(dict.fromkeys(prompt))}
        room = len(self._places) + _FIRST_ROOM
        self._ids = np.zeros(room, dtype=np.int64)
        self._ids[: len(self._places)] = list(self._places)
        self._counts = np.zeros(room, dtype=np.float32)

    @property
    def ids(self) -> np.ndarray:
        """The tokens that are listed, each once: int64 [K]. Valid until the next ``add``."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> np.ndarray:
        """How often each of ``ids`` occurs in the answer: float32 [K]."""
        return self._counts[: len(self._places)]

    def add(self, token: int) -> None:
        """The answer goes on with this token."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[place] = token
        self._counts[place] += 1
