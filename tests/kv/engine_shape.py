"""How large an engine under test is, and what else differs between examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pagoda_inference.kv.prefix_index import chain_digest
from pagoda_inference.scheduling.limits import UNLIMITED, StepLimits
from pagoda_inference.scheduling.step import Step


def two_bit_digest(parent: bytes, packed: bytes) -> bytes:
    """A hash that collides all the time: hits must still be right."""
    return bytes([chain_digest(parent, packed)[0] & 3])


@dataclass(frozen=True)
class Shape:
    """An engine's sizes. ``host`` and ``disk`` are blocks, 0 for no such tier.

    drafter: who guesses next tokens: nobody, one who knows the answers, or a draft model; ``drafts`` at most.
    """

    blocks: int
    block_size: int
    budget: int = 16
    slots: int = 4
    collide: bool = False
    mode: Literal["auto", "swap", "recompute"] = "recompute"
    host: int = 0
    disk: int = 0
    waiting: int = 1024
    limits: StepLimits = UNLIMITED
    drafter: Literal["", "oracle", "model"] = ""
    drafts: int = 4


class SteadyPace:
    """In the place of what an engine learns of its steps: the same every time."""

    def __init__(self, limits: StepLimits) -> None:
        self._limits = limits

    def limits(self, *, shared: bool = False) -> StepLimits:
        return self._limits

    def learn(self, step: Step, seconds: float) -> None:
        pass
