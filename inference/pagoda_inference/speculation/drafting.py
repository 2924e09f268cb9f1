"""How well the next tokens of one sequence are guessed, and how many guesses are worth their cost."""

from __future__ import annotations

from pagoda_inference.scheduling.sequence import Sequence
from pagoda_inference.speculation.repeated_tokens import RepeatedTokens

FIRST_GUESS = 0.5
"""Share of right drafts that a sequence begins with."""
FOLLOW = 0.2
"""How much of one more draft, right or wrong, is believed."""
TRY_AGAIN = 32
"""Tokens after which a sequence whose drafts do not pay gets one draft nevertheless: its text may have changed."""


class Drafting:
    """One sequence's. ``share``: of drafts that are right, of those whose drafts before them were. ``repeated``: where
    its tokens have occurred before; kept by whoever looks there.
    """

    __slots__ = ("_again_at", "repeated", "share")

    def __init__(self) -> None:
        self.share = FIRST_GUESS
        self.repeated: RepeatedTokens | None = None
        self._again_at = 0

    def worthwhile(self, most: int, worth_s: float, draft_s: float, length: int) -> int:
        """How many drafts to make, at most ``most``.

        worth_s: seconds that a token costs without drafts; draft_s: that a draft costs, right or wrong. The k-th draft
        is right with a probability of ``share ** k``, and worthwhile where what it saves on average is not below its
        cost. length: tokens of the sequence so far.
        """
        count, saved = 0, worth_s * self.share
        while count < most and saved >= draft_s:
            count += 1
            saved *= self.share
        if count == 0 and length >= self._again_at:
            return min(1, most)
        return count

    def learn(self, drafted: int, right: int, length: int) -> None:
        """Of so many drafts the first ``right`` were right; ``length`` is that of the sequence before them."""
        for _ in range(right):
            self.share += FOLLOW * (1 - self.share)
        if right < drafted:
            self.share -= FOLLOW * self.share
        self._again_at = length + TRY_AGAIN


def drafting_of(sequence: Sequence) -> Drafting:
    """What is known of a sequence; nothing yet where it is asked for first."""
    if sequence.drafting is None:
        sequence.drafting = Drafting()
    return sequence.drafting
