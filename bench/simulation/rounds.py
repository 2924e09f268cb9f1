"""A serving system behind conversations: the next round comes after the answer, and begins with what was said."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field

from bench.simulation.conversations import Turn
from bench.simulation.job import Job
from bench.simulation.system import ServingSystem, WakesByItself
from bench.simulation.work import MemoryUse, StepWork
from bench.workloads import random_tokens


@dataclass
class _Open:
    """A conversation: what was said, which of its turns is under way, and those that are due already."""

    said: list[int] = field(default_factory=list)
    under_way: Turn | None = None
    due: deque[Turn] = field(default_factory=deque)


class InRounds:
    """A serving system behind conversations: a turn that is due before the answer to the one before has ended comes
    when it has (its arrival is moved there), and gets its tokens then.

    before: tokens of conversations' beginnings that happened before, by conversation. The tokens of an answer are the
    system's own where it tells them, else drawn.
    """

    def __init__(self, system: ServingSystem, before: dict[str, int], seed: int = 20230917) -> None:
        self._system = system
        self._rng = random.Random(seed)
        self._open: dict[str, _Open] = {}
        self._before = before
        self._contexts: dict[Job, list[int]] = {}
        self._refused: list[Job] = []

    @property
    def running(self) -> int:
        return self._system.running

    @property
    def waiting(self) -> int:
        return self._system.waiting

    def arrive(self, job: Job, now: float) -> None:
        assert isinstance(job, Turn)
        conversation = self._open.get(job.conversation)
        if conversation is None:
            conversation = self._open[job.conversation] = _Open()
            conversation.said = random_tokens(self._before.get(job.conversation, 0), self._rng)
        if conversation.under_way is not None:
            conversation.due.append(job)
            job.arrival_s = math.inf
            return
        self._begin(conversation, job, now)

    def _begin(self, conversation: _Open, turn: Turn, now: float) -> None:
        """A prompt that is shorter than the context is its end."""
        context = conversation.said + random_tokens(turn.message, self._rng)
        turn.tokens = context[len(context) - turn.prompt :]
        self._contexts[turn] = context
        conversation.under_way = turn
        self._system.arrive(turn, now)
        if turn.error:
            self._refused.append(turn)
            self._answered(turn, now)

    def begin_step(self, now: float) -> StepWork | None:
        return self._system.begin_step(now)

    def end_step(self, now: float) -> list[Job]:
        ended = self._system.end_step(now)
        for job in ended:
            self._answered(job, now)
        refused, self._refused = self._refused, []
        return [*ended, *refused]

    def _answered(self, job: Job, now: float) -> None:
        conversation = self._open[job.conversation]
        conversation.said = self._contexts.pop(job) + list(job.answer or random_tokens(job.output, self._rng))
        conversation.under_way = None
        job.tokens, job.answer = None, ()
        if conversation.due:
            following = conversation.due.popleft()
            following.arrival_s = now
            self._begin(conversation, following, now)

    def wakes_at(self) -> float | None:
        return self._system.wakes_at() if isinstance(self._system, WakesByItself) else None

    def memory(self) -> MemoryUse:
        return self._system.memory()

    def sharing(self) -> tuple[int, int]:
        return self._system.sharing()
