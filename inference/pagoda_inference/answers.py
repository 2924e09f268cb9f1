"""The text of one answer, token by token, and why it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagoda_inference.decoding.detokenizer import Detokenizer
from pagoda_inference.decoding.stop_strings import StopStrings
from pagoda_inference.protocol import FinishReason


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """What all answers of a generation have in common.

    detokenizer: makes one for an answer. stops: strings that end it and are no part of it. eos_ids: tokens that end it
    (none for ``ignore_eos``). max_tokens: after which it ends anyway.
    """

    detokenizer: Callable[[], Detokenizer]
    stops: Sequence[str]
    eos_ids: frozenset[int]
    max_tokens: int


class Answer:
    """One of a generation's answers, the one with number ``index``.

    ``reason`` is None while it is open. ``output_tokens`` counts the token that ended it, too.
    """

    __slots__ = ("_detokenizer", "_rules", "_stops", "index", "output_tokens", "reason")

    def __init__(self, index: int, rules: AnswerRules) -> None:
        self.index = index
        self.output_tokens = 0
        self.reason: FinishReason | None = None
        self._rules = rules
        self._detokenizer = rules.detokenizer()
        self._stops = StopStrings(rules.stops)

    def advance(self, token: int, *, complete: bool = False) -> str:
        """The text that a new token adds. Sets ``reason`` when it is the last one. Raises ValueError after that.

        complete: the grammar that the answer follows ends with this token.
        """
        if self.reason is not None:
            raise ValueError(f"answer {self.index} has ended already ({self.reason})")
        self.output_tokens += 1
        text = ""
        if token in self._rules.eos_ids:
            self.reason = "stop"
        else:
            text = self._stops.feed(self._detokenizer.feed(token))
            if self._stops.found is not None or complete:
                self.reason = "stop"
            elif self.output_tokens >= self._rules.max_tokens:
                self.reason = "length"
        return text if self.reason is None else text + self._rest()

    def end(self, reason: FinishReason | None) -> str:
        """No token will follow: the text that waited for more. An answer that has ended keeps its reason."""
        if self.reason is not None:
            return ""
        self.reason = reason
        return self._rest()

    def _rest(self) -> str:
        """Flush the detokenizer, then what may have been a stop string's beginning."""
        text = self._stops.feed(self._detokenizer.flush())
        return text + self._stops.flush()
