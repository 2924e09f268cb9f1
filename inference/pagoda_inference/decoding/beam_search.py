"""Beam search over one prompt: which continuations go on, which answers are complete, when the search is over.

Pure bookkeeping, without a model: it is told the most probable next tokens of each live beam and says which are taken.
The choices are those of ``generate(num_beams=...)`` of transformers 5 (``_beam_search`` and what it calls), token for
token, single precision of scores included. A step looks at the best continuations of all beams together: ends among the
best ``width`` of them are complete answers, and the best ``width`` that are no ends are the next beams. Scores are
sums of log probabilities / length ** ``length_penalty``, the length counted in generated tokens with the end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pagoda_inference.model.backend import Candidates

EarlyStopping = bool | Literal["never"]

MAX_LENGTH_PENALTY = 5
"""In either direction: beyond it, scores of long answers leave single precision."""

Pick = tuple[int, int]
"""A continuation: index of the live beam it continues, and its next token."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One answer. ``token_ids`` are the generated ones, with the end token where ``reason`` is ``stop``."""

    token_ids: tuple[int, ...]
    score: float
    reason: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class _Beam:
    token_ids: tuple[int, ...]
    logprob: float
    """Sum over its tokens."""


class BeamSearch:
    """The search for one prompt.

    width: beams kept, at least 1. answers: how many of the best hypotheses are wanted, 1..width. length_penalty: above
    0 favours long answers, below 0 short ones; 0 compares sums. early_stopping: True ends the search as soon as
    ``width`` answers are complete; False when the best open beam, scored as it stands, does not beat the worst of
    them; "never" when it could not at any length that is left. eos_ids: tokens that end an answer. max_tokens: the
    length of an answer at which it ends anyway. Raises ValueError outside these ranges.
    """

    def __init__(
        self,
        width: int,
        answers: int = 1,
        length_penalty: float = 1.0,
        early_stopping: EarlyStopping = False,
        eos_ids: Iterable[int] = (),
        *,
        max_tokens: int,
    ) -> None:
        if not 1 <= answers <= width:
            raise ValueError(f"answers must be in 1..{width} (the width), not {answers}")
        if not abs(length_penalty) <= MAX_LENGTH_PENALTY:
            raise ValueError(f"length_penalty must be in -{MAX_LENGTH_PENALTY}..{MAX_LENGTH_PENALTY}")
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {max_tokens}")
        self.width = width
        self.answers = answers
        self.over = False
        self._length_penalty = length_penalty
        self._early_stopping = early_stopping
        self._eos_ids = frozenset(eos_ids)
        self._max_tokens = max_tokens
        self._length = 0
        self._live = [_Beam((), 0.0)]
        self._complete: list[Hypothesis] = []

    @property
    def live(self) -> int:
        """Open beams: candidates are wanted for each of them. 0 once the search is over."""
        return 0 if self.over else len(self._live)

    @property
    def candidates_per_beam(self) -> int:
        """How many next tokens to give for each beam: enough that every end among them leaves ``width`` others."""
        return self.width + max(self.width, len(self._eos_ids))

    def advance(self, candidates: Sequence[Candidates]) -> list[Pick]:
        """Take one step. ``candidates``: of each live beam in the order of the last picks; of the prompt at first.

        Returns the next beams, best first; [] when the search is over. They are ``width``, or fewer where there are
        not as many continuations. Raises ValueError when it was over already, or for another number of candidates.
        """
        if self.over or len(candidates) != len(self._live):
            raise ValueError(f"candidates for {len(candidates)} beams were given, {self.live} are live")
        self._length += 1
        ranked = self._ranked(candidates)
        last = self._length >= self._max_tokens
        ended = [(pick, logprob) for pick, logprob in ranked[: self.width] if last or pick[1] in self._eos_ids]
        self._completed(self._hypothesis(pick, logprob) for pick, logprob in ended)
        going_on = [] if last else [item for item in ranked if item[0][1] not in self._eos_ids][: self.width]
        self._live = [_Beam(self._tokens(pick), logprob) for pick, logprob in going_on]
        self.over = not self._live or self._decided()
        return [] if self.over else [pick for pick, _ in going_on]

    def hypotheses(self) -> list[Hypothesis]:
        """The best ``answers`` hypotheses, best first.

        Fewer where there were not as many continuations. Of a search that is not over, open beams count as answers
        that end here.
        """
        found = self._complete
        if not self.over and self._length:
            cut = [Hypothesis(beam.token_ids, self._score(beam.logprob), "length") for beam in self._live]
            found = _best(found + cut, self.width)
        return found[: self.answers]

    def _ranked(self, candidates: Sequence[Candidates]) -> list[tuple[Pick, float]]:
        """All continuations with their sums of log probabilities, best first; ties: the better beam, the lower id."""
        continuations = [
            ((index, token), _single(beam.logprob + _single(logprob)))
            for index, (beam, beams) in enumerate(zip(self._live, candidates, strict=True))
            for token, logprob in zip(beams.token_ids, beams.logprobs, strict=True)
        ]
        return sorted(continuations, key=lambda item: (-item[1], item[0]))

    def _tokens(self, pick: Pick) -> tuple[int, ...]:
        return (*self._live[pick[0]].token_ids, pick[1])

    def _hypothesis(self, pick: Pick, logprob: float) -> Hypothesis:
        reason: Literal["stop", "length"] = "stop" if pick[1] in self._eos_ids else "length"
        return Hypothesis(self._tokens(pick), self._score(logprob), reason)

    def _completed(self, hypotheses: Iterable[Hypothesis]) -> None:
        self._complete = _best(self._complete + list(hypotheses), self.width)

    def _decided(self) -> bool:
        """Enough answers are complete, and the open beams are not worth going on with."""
        if len(self._complete) < self.width:
            return False
        if self._early_stopping is True:
            return True
        length = self._length
        if self._early_stopping == "never" and self._length_penalty > 0:
            length = self._max_tokens
        return self._score(self._live[0].logprob, length) <= self._complete[-1].score

    def _score(self, logprob: float, length: int | None = None) -> float:
        return _single(logprob / _single((self._length if length is None else length) ** self._length_penalty))


def _best(hypotheses: Sequence[Hypothesis], count: int) -> list[Hypothesis]:
    """The ``count`` of the greatest scores, in that order; of equal ones those that came first."""
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]


def _single(number: float) -> float:
    """Rounded to single precision, as the sums and scores of tensors are."""
    return ctypes.c_float(number).value
