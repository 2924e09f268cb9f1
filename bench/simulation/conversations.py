"""Conversations that come back: each turn's prompt is all that was said before, and a new message."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.simulation.job import Job
from bench.simulation.tiered import TieredSystem
from bench.traces import laws, sharegpt
from bench.traces.errors import TraceMissing
from bench.workloads import random_tokens

Exchange = tuple[int, int]
"""Tokens of a message and of its answer."""

THINKING_S = 60.0
"""Mean time from an answer to the next message: exponential."""
TOKEN_S = 0.1
"""What a user is taken to wait for each token of an answer: turns are planned ahead, whatever the system takes."""


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


def turns(conversations: Sequence[Sequence[Exchange]], rate: float, rng: random.Random) -> list[Turn]:
    """In the order of their arrival. rate: turns/s in the long run; conversations begin by a Poisson process."""
    starts = rate * len(conversations) / sum(map(len, conversations))
    made: list[Turn] = []
    begin = 0.0
    for number, conversation in enumerate(conversations):
        begin += rng.expovariate(1.0) / starts
        at, context = begin, 0
        for message, answer in conversation:
            context += message
            made.append(Turn(0, at, context, answer, conversation=str(number), message=message))
            context += answer
            at += answer * TOKEN_S + rng.expovariate(1.0) * THINKING_S
    made.sort(key=lambda turn: turn.arrival_s)
    for place, turn in enumerate(made):
        turn.number = place
    return made


class ConversationSystem(TieredSystem):
    """Gives each turn its tokens when it comes: those of its conversation so far, and new ones."""

    def __init__(self, *arguments: Any, seed: int = 20230917, **options: Any) -> None:
        super().__init__(*arguments, seed=seed, **options)
        self._histories: dict[str, list[int]] = {}
        self._words = random.Random(seed)

    def arrive(self, job: Job, now: float) -> None:
        assert isinstance(job, Turn)
        if self._keep:
            before = self._histories.get(job.conversation, [])[: job.prompt - job.message]
            # What an answer that is not there yet would have been is never found again.
            job.tokens = before + random_tokens(job.prompt - len(before), self._words)
        super().arrive(job, now)

    def end_step(self, now: float) -> list[Job]:
        ended = super().end_step(now)
        for job in ended:
            self._histories[job.conversation] = [*(job.tokens or ()), *job.answer]
            job.tokens, job.answer = None, ()
        return ended
