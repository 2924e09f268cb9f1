"""A generation by beam search: silent until the search is over, then each answer whole, the best first."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda_inference.answers import Answer, AnswerRules
from pagoda_inference.decoding.beam_search import BeamSearch, Hypothesis, Pick
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog
from pagoda_inference.model.backend import Candidates
from pagoda_inference.protocol import Delta, FinishReason
from pagoda_inference.scheduling.sequence import Request


class BeamGeneration(Generation):
    """The engine feeds the search; ``candidates_per_beam`` next tokens are wanted for each beam in every step.

    A stop string cuts the text of an answer that is found; the search itself does not know of it.
    """

    __slots__ = ("_rules", "_search", "_told")

    def __init__(self, log: GenerationLog, request: Request, rules: AnswerRules, search: BeamSearch) -> None:
        super().__init__(log, request, [])
        self._rules = rules
        self._search = search
        self._told = False

    @property
    def candidates_per_beam(self) -> int:
        return self._search.candidates_per_beam

    @property
    def answers_open(self) -> int:
        """All that are wanted, until they are told."""
        return 0 if self._told else self._search.answers

    def advance_beams(self, candidates: Sequence[Candidates]) -> list[Pick]:
        """One step of the search, see ``BeamSearch.advance``: which beams go on with which tokens; [] when it is over.

        ``last_deltas`` follows then. Raises ValueError for candidates of another number of beams.
        """
        return self._search.advance(candidates)

    def last_deltas(self) -> list[Delta]:
        """One event for each answer, the best first. Told once: afterwards []."""
        return self.held_text("length")

    def held_text(self, reason: FinishReason | None = None) -> list[Delta]:
        """The answers, of a search that is not over too: open beams are then answers that ``reason`` cut short."""
        if self._told:
            return []
        self._told = True
        return [self._told_answer(index, found, reason) for index, found in enumerate(self._search.hypotheses())]

    def _told_answer(self, index: int, found: Hypothesis, reason: FinishReason | None) -> Delta:
        answer = Answer(index, self._rules)
        text = ""
        for token in found.token_ids:
            text += answer.advance(token)
            if answer.reason is not None:
                break
        text += answer.end(reason or found.reason)
        self.answers.append(answer)
        return self._delta(
            text,
            found.token_ids[: answer.output_tokens],
            index=index,
            finish_reason=answer.reason,
            score=found.score,
        )
