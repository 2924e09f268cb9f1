"""Choosing the next token of each sequence from its logits, independently of the batch it is in.

The random stream is counter based: the number drawn for a token is a hash of (seed, position). A sampler therefore has
no state: a sequence that is preempted and recomputed, or moved to another batch, continues with the same numbers.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the scheduler imports this module without a model
    import torch

_TOP_P_CANDIDATES = 256
"""top-p looks at this many most probable tokens first; only a flatter distribution is sorted whole."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """How one sequence chooses its tokens.

    temperature: 0 is greedy; else logits are divided by it. top_p: in (0, 1], sample from the smallest set of most
    probable tokens whose probability reaches it. seed: of the random stream; None draws one (see ``create``).
    Raises ValueError outside these ranges.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a number >= 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")

    @classmethod
    def create(cls, temperature: float = 0.0, top_p: float = 1.0, seed: int | None = None) -> Sampler:
        """A sampler whose stream is unpredictable unless ``seed`` is given."""
        return cls(temperature, top_p, secrets.randbits(63) if seed is None else seed)

    def stream(self, index: int) -> Sampler:
        """The sampler of answer ``index`` to one prompt: a random stream of its own, repeatable from the same seed.

        Index 0 is the sampler itself, so that the first of several answers is the one that would be given alone.
        """
        if index == 0:
            return self
        key = f"{self.seed}:answer:{index}".encode()
        return replace(self, seed=int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def uniform(self, position: int) -> float:
        """The random number in [0, 1) for the token at ``position`` of its sequence (prompt and output together)."""
        key = f"{self.seed}:{position}".encode()
        return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 11) / (1 << 53)


def sample(logits: torch.Tensor, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int | None]:
    """The next token of each row of ``logits`` [N, V], or None where a row's logits are not numbers.

    positions: of the tokens being chosen. A row whose greatest logit is NaN or infinite is answered None; -inf is a
    masked token. Rows do not influence one another.
    """
    greatest, indices = logits.max(dim=-1)  # NaN is the greatest of all
    usable = greatest.isfinite().tolist()
    chosen: list[int | None] = list(indices.tolist())
    for row, sampler in enumerate(samplers):
        if not usable[row]:
            chosen[row] = None
        elif not sampler.greedy:
            chosen[row] = _draw(logits[row], sampler, positions[row])
    return chosen


def _draw(logits: torch.Tensor, sampler: Sampler, position: int) -> int:
    """One token of ``logits`` [V] by inverse transform sampling from its top-p set."""
    scaled = logits.double()
    probabilities = ((scaled - scaled.max()) / sampler.temperature).softmax(dim=-1)
    number = sampler.uniform(position)
    if sampler.top_p >= 1:
        return _inverse_transform(probabilities, number)
    vocabulary = probabilities.shape[0]
    for candidates in (min(_TOP_P_CANDIDATES, vocabulary), vocabulary):
        values, tokens = probabilities.topk(candidates)
        before = values.cumsum(dim=-1) - values
        if candidates == vocabulary or float(before[-1]) >= sampler.top_p:
            break
    kept = values * (before < sampler.top_p)
    return int(tokens[_inverse_transform(kept, number)])


def _inverse_transform(weights: torch.Tensor, number: float) -> int:
    """Index i with probability weights[i] / sum(weights); never one of weight 0."""
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[-1]
    chosen = int((cumulative <= number * total).sum())
    last = int((cumulative < total).sum())  # where rounding takes number * total up to the total itself
    return min(chosen, last)
