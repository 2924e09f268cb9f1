"""Drafts for a step: who gets how many, and what is learnt from those that were right.

Drafts are checked in the step itself: the model chooses a token after the newest one and after each draft, with the
request's own random numbers, and what it chooses is the answer. A draft that is the token chosen in its place was
right, and the token behind it is had in the same step. The tokens are therefore those of a run without drafts.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

from pagoda_inference import logs
from pagoda_inference.decoding.answer_state import answer_of
from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.model.backend import Accepted, Chunk, Result
from pagoda_inference.scheduling.limits import UNLIMITED, StepLimits
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.speculation.costs import DraftCosts
from pagoda_inference.speculation.drafter import MOST_FAILURES, Drafter
from pagoda_inference.speculation.drafting import drafting_of

logger = logging.getLogger(__name__)


class Speculation:
    """Used from the engine's thread only.

    most: drafts for a sequence in a step. token_budget: most tokens of a step, drafts among them. limits: of the step's
    time. may_decode: see ``Scheduler.may_decode``.
    """

    def __init__(
        self,
        drafter: Drafter,
        costs: DraftCosts,
        *,
        most: int,
        token_budget: int,
        limits: Callable[[], StepLimits] = lambda: UNLIMITED,
        may_decode: Callable[[Ledger, int], bool] = lambda ledger, tokens: True,
    ) -> None:
        self._drafter = drafter
        self._costs = costs
        self._most = most
        self._token_budget = token_budget
        self._limits = limits
        self._may_decode = may_decode
        self._failures = 0

    def draft(self, step: Step, chunks: SequenceOf[Chunk]) -> None:
        """Give the chunks of the step their drafts. Never raises: without drafts the step is what it was."""
        if self._failures >= MOST_FAILURES:
            return
        try:
            chosen = self._choose(step)
            if not chosen:
                return
            places, most = list(chosen), list(chosen.values())
            sequences = [step.chunks[place].sequence for place in places]
            proposed = self._drafter.propose(sequences, [chunks[place] for place in places], most)
            for place, drafts in zip(places, proposed, strict=True):
                chunks[place].drafts = drafts
                step.drafted += len(drafts)
            self._failures = 0
        except Exception as error:
            self._failures += 1
            logs.failure(logger, "drafting_failed", error, off=self._failures >= MOST_FAILURES)

    def learn(self, step: Step, chunks: SequenceOf[Chunk], results: SequenceOf[Result]) -> None:
        """What became of the drafts."""
        for scheduled, chunk, result in zip(step.chunks, chunks, results, strict=True):
            if chunk.drafts and isinstance(result, Accepted):
                right = len(result.tokens) - 1
                step.accepted += right
                sequence = scheduled.sequence
                drafting_of(sequence).learn(len(chunk.drafts), right, len(sequence.tokens))

    def _choose(self, step: Step) -> dict[int, int]:
        """Place in the step -> most drafts of that chunk."""
        rows = sum(1 for scheduled in step.chunks if scheduled.sampled)
        worth_s, cost_s = self._costs.worth_s(rows), self._costs.cost_s(rows)
        if worth_s < cost_s:
            return {}  # in a batch of this size not even drafts that are always right would pay
        tokens = sum(scheduled.count for scheduled in step.chunks)
        left = self._left(rows, tokens)
        given: Counter[Ledger] = Counter()
        chosen: dict[int, int] = {}
        for place, scheduled in enumerate(step.chunks):
            room = min(_room(scheduled), self._most, left)
            if room < 1:
                continue
            sequence = scheduled.sequence
            count = drafting_of(sequence).worthwhile(room, worth_s, cost_s, len(sequence.tokens))
            ledger = sequence.request.ledger
            if count and self._may_decode(ledger, given[ledger] + count):
                chosen[place] = count
                given[ledger] += count
                left -= count
        return chosen

    def _left(self, rows: int, tokens: int) -> int:
        """Drafts that the step has room and time for."""
        left = self._token_budget - tokens
        limits, cost_s = self._limits(), self._costs.cost_s(rows)
        if limits.limited and cost_s > 0:
            spent = limits.base_s + limits.row_s * rows + limits.token_s * (tokens - rows)
            left = min(left, int((limits.target_s - spent) / cost_s))
        return left


def _room(scheduled: ScheduledChunk) -> int:
    """Drafts that a sequence may have: those that its last block has slots for, none that its answer has no room for.

    Only where it decodes alone and nobody else has its last block: what is written for drafts is then its own, and what
    was written for wrong ones is written over before anybody finds it. None where what is chosen next depends on more
    than the model and the sampler: that is known of one token at a time.
    """
    sequence = scheduled.sequence
    if answer_of(sequence.sampler) is not None:
        return 0
    slots = scheduled.capacity - scheduled.start - 1
    return min(slots, sequence.request.max_tokens - sequence.output_length - 1) if slots > 0 else 0
