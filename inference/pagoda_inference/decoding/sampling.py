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

import numpy as np

if TYPE_CHECKING:  # the scheduler imports this module without a model
    import torch


@dataclass(frozen=True, slots=True)
class Sampler:
    """How one sequence chooses its tokens.

    temperature: 0 is greedy; else logits are divided by it. top_k: sample from so many most probable tokens; 0: from
    all. top_p: in (0, 1], of these from the smallest set of most probable ones whose share of their probability
    reaches it. min_p: in [0, 1], and of these from those at least so many times as probable as the most probable one.
    seed: of the random stream; None draws one (see ``create``). Raises ValueError outside these ranges.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a number >= 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 0, not {self.top_k}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be in [0, 1], not {self.min_p}")

    @classmethod
    def create(
        cls,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int | None = None,
        *,
        top_k: int = 0,
        min_p: float = 0.0,
    ) -> Sampler:
        """A sampler whose stream is unpredictable unless ``seed`` is given."""
        return cls(temperature, top_p, secrets.randbits(63) if seed is None else seed, top_k, min_p)

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


def sampling_arrays(samplers: Sequence[Sampler], positions: Sequence[int]) -> dict[str, np.ndarray]:
    """What pagoda_kernels' ``sample`` takes beside N rows of logits, by the names of its parameters.

    uniforms: float64 [N]; temperatures, top_p, min_p: float32 [N]; top_k: int32 [N]. Without those of top_k, top_p and
    min_p that no sampler has.
    """
    greatest = float(np.finfo(np.float32).max)
    arrays = {
        "uniforms": np.array(
            [0.0 if s.greedy else s.uniform(position) for s, position in zip(samplers, positions, strict=True)]
        ),
        "temperatures": np.array([min(sampler.temperature, greatest) for sampler in samplers], dtype=np.float32),
    }
    if any(sampler.top_p < 1 for sampler in samplers):
        arrays["top_p"] = np.array([sampler.top_p for sampler in samplers], dtype=np.float32)
    if any(sampler.top_k for sampler in samplers):
        most = np.iinfo(np.int32).max
        arrays["top_k"] = np.array([min(sampler.top_k, most) for sampler in samplers], dtype=np.int32)
    if any(sampler.min_p for sampler in samplers):
        arrays["min_p"] = np.array([sampler.min_p for sampler in samplers], dtype=np.float32)
    return arrays


def sample(logits: torch.Tensor, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int | None]:
    """The next token of each row of ``logits`` [N, V], or None where a row's logits are not numbers.

    positions: of the tokens being chosen. Plain torch, for where there are no kernels; these give the same tokens. A
    row whose greatest logit is NaN or infinite is answered None; -inf is a masked token. Rows do not influence one
    another.
    """
    import torch

    from pagoda_kernels import layer_reference

    arrays = sampling_arrays(samplers, positions)
    numbers = {name: torch.from_numpy(array).to(logits.device) for name, array in arrays.items()}
    return [None if token < 0 else token for token in layer_reference.sample(logits, **numbers).tolist()]
