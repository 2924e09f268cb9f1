"""Users who talk round by round: the next one comes after the answer, and its prompt is what was said until then."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.simulation.conversations import Exchange, Turn
from bench.simulation.job import Job
from bench.simulation.system import ServingSystem
from bench.simulation.work import MemoryUse, StepWork
from bench.workloads import random_tokens


@dataclass(frozen=True)
class Limits:
    """Tokens. prompt: a longer context is cut to its end. answer: its most. both: a conversation whose next prompt and
    answer have more is over.
    """

    prompt: int = 2048
    answer: int = 2048
    both: int = 2048


@dataclass(frozen=True)
class Round:
    """Tokens. before: what was said until then; the prompt is the end of that and of the message."""

    before: int
    message: int
    prompt: int
    answer: int


def rounds_of(exchanges: Sequence[Exchange], limits: Limits) -> list[Round]:
    """The rounds of a conversation within the limits; there may be none."""
    rounds: list[Round] = []
    before = 0
    for said, answered in exchanges:
        message, answer = max(1, said), min(max(1, answered), limits.answer)
        prompt = min(before + message, limits.prompt)
        if prompt + answer > limits.both:
            break
        rounds.append(Round(before, message, prompt, answer))
        before += message + answer
    return rounds


@dataclass(frozen=True)
class Users:
    """``count`` people who talk all the time, each in one conversation after the other."""

    conversations: Sequence[Sequence[Round]]
    count: int

    def turns(self, rate: float, count: int, seed: int) -> tuple[list[Turn], dict[str, int]]:
        """``count`` rounds, ``rate`` a second by a Poisson process, each of anybody; and the tokens that were said
        before, by conversation, in those that are under way at the begin: each at a round that is drawn among all.

        Raises ValueError where no conversation has a round.
        """
        rng = random.Random(seed)
        usable = [rounds for rounds in self.conversations if rounds]
        if not usable:
            raise ValueError("no conversation has a round within the limits")
        begun = rng.choices(usable, weights=[len(rounds) for rounds in usable], k=self.count)
        talks = [deque(rounds[rng.randrange(len(rounds)) :]) for rounds in begun]
        names = [str(user) for user in range(self.count)]
        before = {name: talk[0].before for name, talk in zip(names, talks, strict=True)}
        turns, now = [], 0.0
        for number in range(count):
            now += rng.expovariate(1.0) / rate
            user = rng.randrange(self.count)
            one, name = talks[user].popleft(), names[user]
            turns.append(Turn(number, now, one.prompt, one.answer, conversation=name, message=one.message))
            if not talks[user]:
                talks[user], names[user] = deque(rng.choice(usable)), f"{user} after {number}"
        return turns, before


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

    def memory(self) -> MemoryUse:
        return self._system.memory()

    def sharing(self) -> tuple[int, int]:
        return self._system.sharing()
