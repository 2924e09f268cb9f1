"""One generation as the engine loop sees it: its request, its text so far, the number of its next event."""

from __future__ import annotations

from pagoda_inference.decoding.detokenizer import Detokenizer
from pagoda_inference.decoding.stop_strings import StopStrings
from pagoda_inference.generation_log import GenerationLog
from pagoda_inference.protocol import Delta, Error, Finished, FinishReason, Started, Usage
from pagoda_inference.scheduling.sequence import Request


class Generation:
    """Belongs to the engine's thread from its submission to its end; ``log`` is the event loop's and only passed on.

    eos_ids: tokens that end the answer (none for ``ignore_eos``).
    """

    __slots__ = ("_detokenizer", "_stops", "eos_ids", "log", "request", "seq")

    def __init__(
        self,
        log: GenerationLog,
        request: Request,
        detokenizer: Detokenizer,
        stops: StopStrings,
        eos_ids: frozenset[int],
    ) -> None:
        self.log = log
        self.request = request
        self.eos_ids = eos_ids
        self.seq = 0
        self._detokenizer = detokenizer
        self._stops = stops

    def started(self) -> Started:
        """The event of the first admission."""
        request = self.request
        return Started(request.id, self._next(), request.sequences[0].prompt_length, request.cached_tokens)

    def advance(self, token: int) -> tuple[Delta, FinishReason | None]:
        """The event of a new token, and why it is the last one if it is."""
        reason: FinishReason | None = None
        text = ""
        if token in self.eos_ids:
            reason = "stop"
        else:
            text = self._stops.feed(self._detokenizer.feed(token))
            if self._stops.found is not None:
                reason = "stop"
            elif self.request.sequences[0].output_length >= self.request.max_tokens:
                reason = "length"
        if reason is not None:
            text += self._rest()
        return Delta(self.request.id, self._next(), text, (token,)), reason

    def held_text(self) -> Delta | None:
        """The text that waited for more, when no token will follow."""
        text = self._rest()
        return Delta(self.request.id, self._next(), text) if text else None

    def finished(self, reason: FinishReason, now: float, *, blocks_freed: int, error: Error | None = None) -> Finished:
        """The last event. ``now`` is on the clock of the request's arrival."""
        request = self.request
        first, admitted = request.first_token_at, request.admitted_at
        usage = Usage(
            prompt_tokens=request.sequences[0].prompt_length,
            cached_tokens=request.cached_tokens,
            output_tokens=request.sequences[0].output_length,
            queued_s=(now if admitted is None else admitted) - request.arrival,
            prefill_s=0.0 if admitted is None else (now if first is None else first) - admitted,
            decode_s=0.0 if first is None else now - first,
            preemptions=request.preemptions,
            blocks_freed=blocks_freed,
        )
        return Finished(request.id, self._next(), reason, usage, error)

    def _rest(self) -> str:
        """Flush the detokenizer, then what may have been a stop string's beginning."""
        text = self._stops.feed(self._detokenizer.flush())
        return text + self._stops.flush()

    def _next(self) -> int:
        self.seq += 1
        return self.seq
