"""A request of a simulation: what it asks for, and when it got it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Job:
    """Times are seconds of virtual time; ``output`` is the length of every one of its answers, in tokens.

    tokens: the prompt itself, where prefixes may be shared; else only its length counts. samples: answers to one
    prompt. beam_width: above 0 it is a beam search of that many beams. conversation: whose later turns may find it.
    """

    number: int
    arrival_s: float
    prompt: int
    output: int
    tenant: str = "bench"
    samples: int = 1
    beam_width: int = 0
    tokens: Sequence[int] | None = field(default=None, repr=False)
    conversation: str = ""
    first_token_s: float | None = None
    end_s: float | None = None
    cached: int = 0
    answer: Sequence[int] = field(default=(), repr=False)
    """The tokens of its first answer, where they are kept."""
    preemptions: int = 0
    error: str = ""

    @property
    def width(self) -> int:
        """Sequences that decode for it."""
        return max(self.samples, self.beam_width, 1)

    @property
    def latency_s(self) -> float:
        """End-to-end; 0 while it has not ended."""
        return 0.0 if self.end_s is None else self.end_s - self.arrival_s

    @property
    def normalised_latency_s(self) -> float:
        """The paper's metric (section 6.1): end-to-end latency over output length, in s/token."""
        return self.latency_s / self.output
