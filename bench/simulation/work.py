"""What one step of a serving system computes and moves, and what its memory holds meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepWork:
    """Counts of one iteration, of the whole batch.

    prompt_tokens: tokens of prompts computed. prompt_pairs: (query, key) pairs of their attention. prompt_rows:
    sequences that they belong to. rows: sequences that get one token. context: tokens of KV that these read.
    siblings: how many of all these sequences are further ones of a request (samples, beams). block_size: tokens that
    lie together in memory; 0 where a sequence's KV is contiguous. copied_tokens: tokens of KV copied inside the
    device's memory. copies: how many of such copies are begun apart, on the mean; none where one kernel does them all.
    swapped_blocks: blocks copied between host and device while nothing else runs.
    """

    prompt_tokens: int = 0
    prompt_pairs: float = 0.0
    prompt_rows: int = 0
    rows: int = 0
    context: int = 0
    siblings: int = 0
    block_size: int = 0
    copied_tokens: int = 0
    copies: float = 0.0
    swapped_blocks: int = 0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Token slots of the KV memory by kind, as in the paper's Figure 2.

    tokens: hold the KV of a token. reservation: will hold one of the running requests' own. internal: reserved for them
    and never used. external: the rest: lost between reservations, or free.
    """

    tokens: float
    reservation: float
    internal: float
    external: float

    @property
    def total(self) -> float:
        return self.tokens + self.reservation + self.internal + self.external
