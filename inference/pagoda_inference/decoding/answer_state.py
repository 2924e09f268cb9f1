"""What the choice of an answer's next token depends on besides the model: penalties, biases, a grammar, its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from pagoda_inference.decoding.guide import Guide
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.decoding.token_counts import TokenCounts

if TYPE_CHECKING:
    from pagoda_inference.decoding.grammars import CompiledGrammar
    from pagoda_inference.protocol import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Processing:
    """What a request asks to be done with its logits, beyond sampling: fields as those of ``Sampling``."""

    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    grammar: CompiledGrammar | None = None

    @property
    def penalises(self) -> bool:
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)

    @property
    def changes_logits(self) -> bool:
        return self.penalises or bool(self.logit_bias) or self.grammar is not None

    @property
    def needed(self) -> bool:
        """It asks for anything at all."""
        return self.changes_logits or self.logprobs is not None


class AnswerState:
    """One answer's. All of it follows from the tokens of its sequence: ``catch_up`` brings it there from any earlier
    point, so that forks, preemption and steps that are computed again leave it right.

    prompt: the tokens that all answers of the request begin with.
    """

    __slots__ = ("_length", "_prompt", "_told", "counts", "guide", "processing")

    def __init__(self, processing: Processing, prompt: Sequence[int]) -> None:
        self.processing = processing
        self._prompt = prompt
        self._length = 0
        self._told: dict[int, TokenLogprobs] = {}
        self.counts: TokenCounts | None = None
        """Tokens of the answer, and those of the prompt where they are penalised too."""
        self.guide: Guide | None = None
        self._begin()

    @property
    def length(self) -> int:
        """Tokens that it knows of: prompt and answer."""
        return self._length

    def catch_up(self, tokens: Sequence[int]) -> None:
        """The sequence has these tokens now. Raises GrammarError where the grammar does not allow them."""
        if len(tokens) < self._length:
            self._begin()
        new = tokens[self._length :]
        self._length = len(tokens)
        if self.counts is not None:
            for token in new:
                self.counts.add(token)
        if self.guide is not None and new:
            self.guide.advance(new)

    @property
    def complete(self) -> bool:
        """The grammar allows nothing any more: the answer is whole as it is."""
        return self.guide is not None and self.guide.complete

    def another(self) -> AnswerState:
        """Of another answer to the same prompt, at its beginning."""
        return AnswerState(self.processing, self._prompt)

    def tell(self, position: int, logprobs: TokenLogprobs) -> None:
        """Keep what is told of the token at ``position`` of the sequence until it is asked for."""
        self._told[position] = logprobs

    def told(self, position: int) -> TokenLogprobs | None:
        """What was told of the token at ``position``. Once."""
        return self._told.pop(position, None)

    def _begin(self) -> None:
        processing = self.processing
        self._length = len(self._prompt)
        if processing.penalises:
            self.counts = TokenCounts(self._prompt if processing.repetition_penalty != 1 else ())
        self.guide = None if processing.grammar is None else processing.grammar.guide()


@dataclass(frozen=True, slots=True)
class ProcessingSampler(Sampler):
    """A sampler of an answer whose logits are processed first, or whose tokens' log probabilities are told."""

    answer: AnswerState | None = None

    @classmethod
    def of(cls, sampler: Sampler, answer: AnswerState) -> ProcessingSampler:
        """As ``sampler``, for an answer with this state."""
        return cls(**{field.name: getattr(sampler, field.name) for field in fields(sampler)}, answer=answer)

    def stream(self, index: int) -> Sampler:
        if index == 0:
            return self
        other = Sampler.stream(self, index)
        assert isinstance(other, ProcessingSampler)
        assert self.answer is not None
        return replace(other, answer=self.answer.another())


def answer_of(sampler: Sampler | None) -> AnswerState | None:
    """The state that a sampler's tokens depend on, where there is any."""
    return sampler.answer if isinstance(sampler, ProcessingSampler) else None
