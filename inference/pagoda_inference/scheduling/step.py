"""One step: what the scheduler wants computed now, and what it decided on the way."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from pagoda_inference.protocol import Error
from pagoda_inference.scheduling.sequence import Request, Sequence


class ScheduledChunk:
    """Tokens ``start .. start + count - 1`` of a sequence; ``sampled`` if a next token is wanted after them.

    ``charged``: how many of them were counted as input, and ``priced`` as service. ``copies``: (source, destination)
    blocks to copy before this chunk writes. The chunk of a sequence that decodes alone is used again in every
    step, moved on by a token when one is complete, until ``capacity``: the tokens that its blocks hold.
    """

    __slots__ = ("capacity", "charged", "copies", "count", "priced", "sampled", "sequence", "start")

    def __init__(self, sequence: Sequence, start: int, count: int, sampled: bool) -> None:
        self.sequence = sequence
        self.start = start
        self.count = count
        self.sampled = sampled
        self.capacity = 0
        self.charged = 0
        self.priced = 0
        self.copies: SequenceOf[tuple[int, int]] = ()


@dataclass(slots=True)
class Step:
    """chunks: to run together. admitted: requests that start with this step (first time). exhausted: requests that can
    never grow again under their account's effective limit; to be finished with ``length``. refused: requests that can
    never begin, and why. preempted: requests that lost their blocks. paused: somebody was kept from decoding because
    another tenant is far behind. drafted, accepted: tokens that were guessed for the chunks, and those of them that
    were right."""

    number: int = 0
    chunks: list[ScheduledChunk] = field(default_factory=list)
    admitted: list[Request] = field(default_factory=list)
    exhausted: list[Request] = field(default_factory=list)
    refused: dict[Request, Error] = field(default_factory=dict)
    preempted: list[Request] = field(default_factory=list)
    paused: bool = False
    drafted: int = 0
    accepted: int = 0

    @property
    def copies(self) -> list[tuple[int, int]]:
        """(source, destination) blocks that the backend has to copy before it runs the chunks."""
        return [pair for chunk in self.chunks if chunk.copies for pair in chunk.copies]

    def without(self, request: Request) -> list[ScheduledChunk]:
        """Take a request's chunks out again (it was preempted for somebody else in this very step)."""
        gone = [chunk for chunk in self.chunks if chunk.sequence.request is request]
        if gone:
            self.chunks = [chunk for chunk in self.chunks if chunk.sequence.request is not request]
        return gone
