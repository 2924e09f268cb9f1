"""One generation as the engine loop sees it: its request, and its events with their numbers.

What it answers is of one of two kinds: ``sampled_generation`` gives each token as it is chosen,
``beam_generation`` whole answers at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from pagoda_inference.answers import Answer
from pagoda_inference.generation_log import GenerationLog
from pagoda_inference.protocol import Delta, Error, Finished, FinishReason, Started, TokenLogprobs, Usage
from pagoda_inference.scheduling.sequence import Request


class Generation(ABC):
    """Belongs to the engine's thread from its submission to its end; ``log`` is the event loop's and only passed on.

    ``answers`` are those that its caller gets, or has got so far.
    """

    __slots__ = ("_prompt_tokens", "answers", "log", "request", "seq")

    def __init__(self, log: GenerationLog, request: Request, answers: list[Answer]) -> None:
        self.log = log
        self.request = request
        self.answers = answers
        self.seq = 0
        self._prompt_tokens = request.sequences[0].prompt_length

    @property
    @abstractmethod
    def answers_open(self) -> int:
        """Answers that have not ended."""

    @abstractmethod
    def held_text(self, reason: FinishReason | None = None) -> list[Delta]:
        """What open answers still have to say when no token will follow; ``reason`` is why. Ends them."""

    @property
    def output_tokens(self) -> int:
        """Of all answers together."""
        return sum(answer.output_tokens for answer in self.answers)

    @property
    def finish_reason(self) -> FinishReason:
        """Of the whole, once no answer is open: ``stop`` where every answer came to its own end."""
        reasons = [answer.reason for answer in self.answers]
        return next((reason for reason in reasons if reason not in (None, "stop")), None) or "stop"

    def started(self) -> Started:
        """The event of the first admission."""
        return Started(self.request.id, self._next(), self._prompt_tokens, self.request.cached_tokens)

    def finished(self, reason: FinishReason, now: float, *, blocks_freed: int, error: Error | None = None) -> Finished:
        """The last event. ``now`` is on the clock of the request's arrival. An error beside the reason ``length`` is no
        failure: it says which limit was reached.
        """
        request = self.request
        first, admitted = request.first_token_at, request.admitted_at
        usage = Usage(
            prompt_tokens=self._prompt_tokens,
            cached_tokens=request.cached_tokens,
            output_tokens=self.output_tokens,
            queued_s=(now if admitted is None else admitted) - request.arrival,
            prefill_s=0.0 if admitted is None else (now if first is None else first) - admitted,
            decode_s=0.0 if first is None else now - first,
            preemptions=request.preemptions,
            blocks_freed=blocks_freed,
        )
        if reason == "length":
            return Finished(request.id, self._next(), reason, usage, limit_reached=error)
        return Finished(request.id, self._next(), reason, usage, error)

    def _delta(
        self,
        text: str,
        token_ids: tuple[int, ...] = (),
        *,
        index: int = 0,
        finish_reason: FinishReason | None = None,
        score: float | None = None,
        logprobs: tuple[TokenLogprobs, ...] = (),
    ) -> Delta:
        return Delta(self.request.id, self._next(), text, token_ids, index, finish_reason, score, logprobs)

    def _next(self) -> int:
        self.seq += 1
        return self.seq
