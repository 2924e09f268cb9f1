"""Beam searches without a model: the engine's own search, fed with log probabilities drawn from a law.

Which beams survive decides what they share. The law is that of a language model's next token: the most probable one
has probability p ~ Beta(``CONFIDENCE``), and what is left is divided among the next ranks by rank ** -``DECAY``. In a
share ``LIKENESS`` of the steps all beams of a search have the same probabilities, as beams that differ in a word go on
alike.

The constants are SmolLM2-135M-Instruct's, from the probabilities that ``python -m bench beams`` saw in searches of 2, 4
and 6 beams on 32 MT-bench questions: mean and variance of the best token's probability, the second's mean share of what
it leaves, and how the best probabilities of beams of one step correlate. None is fitted to what is shared.
"""

from __future__ import annotations

import functools
import math
import random
from collections import Counter

from pagoda_inference.decoding.beam_search import BeamSearch, Pick
from pagoda_inference.model.backend import Candidates

CONFIDENCE = (1.086, 0.552)
DECAY = 1.505
LIKENESS = 0.25
RANKS = 64
"""Ranks that what is left is divided among."""
STEPS = 2_000
"""Steps that ``copied_beams`` is the mean of."""


class SimulatedBeams:
    """One search of ``width`` beams to exactly ``output`` tokens, from a random stream of its own."""

    def __init__(self, width: int, output: int, rng: random.Random) -> None:
        self._search = BeamSearch(width, max_tokens=output)
        self._rng = rng
        self._beams = 1

    @property
    def candidates_per_beam(self) -> int:
        return self._search.candidates_per_beam

    def advance(self) -> list[Pick]:
        """The beams that go on after the next step, as (index of the beam, token); [] when the answers are found."""
        count = self._search.candidates_per_beam
        alike = self._candidates(count) if self._rng.random() < LIKENESS else None
        picks = self._search.advance([alike or self._candidates(count) for _ in range(self._beams)])
        self._beams = len(picks)
        return picks

    def _candidates(self, count: int) -> Candidates:
        confidence = self._rng.betavariate(*CONFIDENCE)
        rest = math.log(max(1e-9, 1 - confidence))
        others = [rest + math.log(share) for share in _shares(count)]
        logprobs = sorted([math.log(max(1e-9, confidence)), *others], reverse=True)[:count]
        return Candidates(tuple(range(1, count + 1)), tuple(logprobs))


@functools.cache
def _shares(count: int) -> tuple[float, ...]:
    weights = [rank**-DECAY for rank in range(1, RANKS + 1)]
    return tuple(weight / sum(weights) for weight in weights[:count])


@functools.cache
def copied_beams(width: int) -> float:
    """How many of ``width`` beams go on from tokens that another beam goes on from too, on the mean of a step: each of
    them but one needs a copy where nothing can be shared.
    """
    beams = SimulatedBeams(width, STEPS + 1, random.Random(width))
    copies = 0
    for _ in range(STEPS):
        parents = Counter(index for index, _ in beams.advance())
        copies += sum(count - 1 for count in parents.values())
    return copies / STEPS
