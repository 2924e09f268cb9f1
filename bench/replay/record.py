"""What became of one request."""

from __future__ import annotations

from dataclasses import dataclass, field

UNFINISHED = "unfinished"


@dataclass(slots=True)
class Record:
    """Times in seconds since the replay began.

    tenant: whose key it was sent with. prompt_tokens, output_tokens: as asked for. due_s: when it was to be sent: its
    arrival in the trace, or the end of its conversation's turn before, if that is later. sent_s: when it was; None:
    never. text_s: when pieces of the answer came, of one token or several each.
    outcome: "" for an answer, the code of an error, or UNFINISHED where the replay ended before the request did.
    cached_tokens, written_tokens: of prompt and answer, as the server counted them.
    """

    tenant: str
    prompt_tokens: int
    output_tokens: int
    due_s: float
    sent_s: float | None = None
    text_s: list[float] = field(default_factory=list)
    end_s: float | None = None
    outcome: str = UNFINISHED
    cached_tokens: int = 0
    written_tokens: int = 0

    def was_due(self, by_s: float) -> bool:
        """Whether it was sent, or should have been by then."""
        return self.sent_s is not None or self.due_s <= by_s

    @property
    def last_s(self) -> float:
        """When something happened to it last; 0 where nothing did."""
        return max([self.sent_s or 0.0, *self.text_s[-1:], self.end_s or 0.0])

    @property
    def is_answered(self) -> bool:
        return self.outcome == ""

    @property
    def ttft_s(self) -> float:
        """From being sent to the first text. Of an answered request."""
        assert self.sent_s is not None
        return self.text_s[0] - self.sent_s

    @property
    def end_to_end_s(self) -> float:
        """From being sent to the end of the answer. Of an answered request."""
        assert self.sent_s is not None
        assert self.end_s is not None
        return self.end_s - self.sent_s

    @property
    def late_s(self) -> float:
        """How late the sender was. Of a request that was sent."""
        assert self.sent_s is not None
        return self.sent_s - self.due_s
