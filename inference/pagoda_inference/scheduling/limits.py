"""How much a step may take on, so that nobody waits long for the next one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

LEAST_TOKENS = 16
"""Prompt tokens that a step takes on whatever it costs: prompts always get on."""
PROMPTS_SHARE = 1 / 3
"""Of a step's time, what decodes leave to prompts while there are any."""
FIRST_TOKEN_SHARE = 1 / 2
"""Of a step's time, what decodes may fill beside the prompt of a tenant that has had less than all who decode."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """A step takes ``base_s + row_s * (sequences that get a token) + token_s * (prompt tokens)`` seconds and should
    take no more than ``target_s``. Without a target nothing is limited.
    """

    target_s: float = inf
    base_s: float = 0.0
    row_s: float = 0.0
    token_s: float = 0.0

    @property
    def limited(self) -> bool:
        return self.target_s != inf

    def decodes(self, *, prompts: bool) -> int | None:
        """Most sequences that may decode, at least one; None: all. ``prompts``: there are prompts to compute beside
        them.
        """
        rows = self._rows(self.target_s * (1 - PROMPTS_SHARE if prompts else 1))
        return None if rows is None else max(1, rows)

    def decodes_beside_first(self, tokens: int) -> int | None:
        """Most sequences that may decode beside so many tokens of a prompt that shall not wait."""
        return self._rows(self.target_s * FIRST_TOKEN_SHARE - self.token_s * tokens)

    def tokens(self, rows: int, most: int) -> int:
        """Prompt tokens that a step with so many decoding sequences has time for, at most ``most``."""
        if not self.limited or self.token_s <= 0:
            return most
        left = (self.target_s - self.base_s - self.row_s * rows) / self.token_s
        return min(most, max(LEAST_TOKENS, int(left)))

    def _rows(self, seconds: float) -> int | None:
        if not self.limited or self.row_s <= 0:
            return None
        return max(0, int((seconds - self.base_s) / self.row_s))


UNLIMITED = StepLimits()
