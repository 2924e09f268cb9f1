"""Conversations and the people who hold them: each round's prompt is what was said before, and a new message."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.simulation.job import Job
from bench.traces import laws, sharegpt
from bench.traces.errors import TraceMissing

Exchange = tuple[int, int]
"""Tokens of a message and of its answer."""

CONVERSATIONS = 4_000
LONGEST_CONVERSATION = 20_000
"""Tokens: what is beyond is left out."""
BETWEEN_S = 60.0
"""From one round of a user to the next, on the mean. AN ASSUMPTION: the traces do not say."""


@dataclass(slots=True, eq=False)
class Turn(Job):
    """message: tokens at the end of the prompt that are new."""

    message: int = 0

    @property
    def returns(self) -> bool:
        return self.message < self.prompt


def exchanges(count: int, rng: random.Random, longest: int, traces: Path | None = None) -> list[list[Exchange]]:
    """``count`` conversations, cut before they grow beyond ``longest`` tokens: real ones where they are at hand, else
    with the chatbot law's share of first rounds, first messages and answers; later messages are as first ones.
    """
    drawn: list[list[Exchange]] = []
    real = _real(traces)
    while len(drawn) < count:
        whole = rng.choice(real) if real else _by_law(rng)
        kept, total = [], 0
        for message, answer in whole:
            total += max(1, message) + max(1, answer)
            if total > longest:
                break
            kept.append((max(1, message), max(1, answer)))
        if kept:
            drawn.append(kept)
    return drawn


def _real(traces: Path | None) -> list[list[Exchange]]:
    try:
        return sharegpt.conversations(traces) if traces is not None else []
    except TraceMissing:
        return []


def _by_law(rng: random.Random) -> list[Exchange]:
    turns = 1
    while rng.random() > laws.FIRST_ROUNDS:
        turns += 1
    message, answer = laws.CHATBOT_FIRST_PROMPT, laws.CHATBOT_OUTPUT
    longest = laws.LONGEST_ROUND
    return [(min(longest, round(message.draw(rng))), min(longest, round(answer.draw(rng)))) for _ in range(turns)]


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


def users_at(rate: float, limits: Limits, seed: int, traces: Path | None = None) -> Users:
    """As many as together have ``rate`` rounds/s when each has one every BETWEEN_S, in conversations that are drawn."""
    said = exchanges(CONVERSATIONS, random.Random(seed), LONGEST_CONVERSATION, traces)
    return Users([rounds_of(one, limits) for one in said], max(1, round(rate * BETWEEN_S)))
