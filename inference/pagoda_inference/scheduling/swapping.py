"""How a preempted request comes back: from the host (swap), or by computing it again, whichever costs less.

The paper compares the two in its Figure 19: copying pays where blocks are large or prompts are slow to compute. Both
rates are measured when the engine starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["swap", "recompute"]
Mode = Literal["auto", "swap", "recompute"]


@dataclass(frozen=True, slots=True)
class PreemptionCost:
    """mode: ``auto`` compares; the others force. Rates: bytes/s of a copy, tokens/s of a prompt's computation."""

    mode: Mode = "recompute"
    block_bytes: int = 1
    copy_bytes_per_s: float = 1.0
    prefill_tokens_per_s: float = 1.0

    def kind(self, blocks: int, tokens: int) -> Kind:
        """For a request with that many blocks of its own and tokens computed."""
        if self.mode != "auto":
            return self.mode
        there_and_back = 2 * blocks * self.block_bytes / self.copy_bytes_per_s
        return "swap" if there_and_back < tokens / self.prefill_tokens_per_s else "recompute"

    def loading_pays(self, blocks: int, tokens: int) -> bool:
        """Whether cached blocks of a tier are brought back sooner than computed again."""
        if self.mode != "auto":
            return True
        return blocks * self.block_bytes / self.copy_bytes_per_s < tokens / self.prefill_tokens_per_s
