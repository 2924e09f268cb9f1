"""A generation whose answers are given token by token: one, or several to the same prompt beside each other."""

from __future__ import annotations

from pagoda_inference.answers import Answer, AnswerRules
from pagoda_inference.decoding.answer_state import answer_of
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog
from pagoda_inference.protocol import Delta, FinishReason, TokenLogprobs
from pagoda_inference.scheduling.sequence import Request, Sequence


class SampledGeneration(Generation):
    """Each token of each answer is an event. Where there are ``count`` > 1 answers, the last event of each says why.

    Where log probabilities were asked for they are told with each token, and their sum with an answer's last.
    """

    __slots__ = ("_scores",)

    def __init__(self, log: GenerationLog, request: Request, rules: AnswerRules, count: int = 1) -> None:
        super().__init__(log, request, [Answer(index, rules) for index in range(count)])
        self._scores = [0.0] * count

    @property
    def answers_open(self) -> int:
        return sum(answer.reason is None for answer in self.answers)

    def advance(self, sequence: Sequence, token: int) -> tuple[Delta, FinishReason | None]:
        """The event of a new token of ``sequence``, and why it is that answer's last one if it is.

        Raises ValueError for an answer that has ended, GrammarError where its grammar does not allow the token.
        """
        answer = self.answers[sequence.index]
        state = answer_of(sequence.sampler)
        if state is None:
            text = answer.advance(token)
            return self._event(answer, text, (token,)), answer.reason
        told = state.told(sequence.prompt_length + answer.output_tokens)
        state.catch_up(sequence.tokens)
        text = answer.advance(token, complete=state.complete)
        return self._event(answer, text, (token,), told), answer.reason

    def held_text(self, reason: FinishReason | None = None) -> list[Delta]:
        deltas = []
        for answer in self.answers:
            if answer.reason is None:
                text = answer.end(reason)
                if text or (reason is not None and len(self.answers) > 1):
                    deltas.append(self._event(answer, text))
        return deltas

    def _event(
        self, answer: Answer, text: str, token_ids: tuple[int, ...] = (), told: TokenLogprobs | None = None
    ) -> Delta:
        reason = answer.reason if len(self.answers) > 1 else None
        if told is None:
            return self._delta(text, token_ids, index=answer.index, finish_reason=reason)
        self._scores[answer.index] += told.logprob
        score = None if answer.reason is None else self._scores[answer.index]
        return self._delta(text, token_ids, index=answer.index, finish_reason=reason, score=score, logprobs=(told,))
