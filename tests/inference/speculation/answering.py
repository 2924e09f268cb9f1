"""A whole engine without its thread, that answers with and without drafts; tenants beside each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.engine import Engine, Observer, Outcome
from pagoda_inference.generation_log import GenerationLog, Ledger
from pagoda_inference.kv.pool import Pool
from pagoda_inference.model.backend import Backend, Chunk
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import Delta, Error, Finished, Generate, Sampling, Started
from pagoda_inference.scheduling.scheduler import Scheduler
from pagoda_inference.scheduling.sequence import Sequence as Answering
from pagoda_inference.scheduling.step import Step
from pagoda_inference.speculation.costs import DraftCosts
from pagoda_inference.speculation.drafter import Drafter
from pagoda_inference.speculation.speculation import Speculation

TOKENIZER = EchoTokenizer()


@dataclass
class Heard:
    """What a caller heard of its generation."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    text: str = ""
    started: Started | None = None
    finished: Finished | None = None

    @property
    def answer(self) -> list[int]:
        return self.tokens.get(0, [])


class Answers:
    """drafts: most for a sequence in a step; drafter: who makes them, None for no speculation."""

    def __init__(
        self,
        backend: Backend,
        drafter: Drafter | None = None,
        *,
        drafts: int = 4,
        token_budget: int = 64,
        costs: DraftCosts | None = None,
    ) -> None:
        self.pool = Pool(backend.total_blocks, backend.block_size)
        self.scheduler = Scheduler(self.pool, token_budget=token_budget, max_running=8)
        self.drafted = self.accepted = self.steps = 0
        speculation = None
        if drafter is not None:
            speculation = Speculation(
                drafter,
                costs or DraftCosts(),
                most=drafts,
                token_budget=token_budget,
                may_decode=self.scheduler.may_decode,
            )
        self.engine = Engine(
            backend,
            self.scheduler,
            instance="test",
            deliver=self._hear,
            observer=Observer(step=self._count),
            speculation=speculation,
            debug=True,
        )
        self._backend = backend
        self._heard: dict[GenerationLog, Heard] = {}
        self._ids = itertools.count()

    def ask(self, prompt: Sequence[int], account: str = "acme", **sampling: object) -> Heard:
        command = Generate(
            id=str(next(self._ids)),
            account=account,
            scope=f"tenant:{account}",
            prompt_token_ids=tuple(prompt),
            sampling=Sampling(**sampling),  # type: ignore[arg-type]
        )
        log = GenerationLog((account, command.id), Ledger())
        heard = self._heard[log] = Heard()
        self.engine.submit(
            prepare(
                command,
                log,
                TOKENIZER,
                context_length=self._backend.context_length,
                vocabulary_size=min(self._backend.vocabulary_size, 260),
            )
        )
        return heard

    def run(self) -> None:
        for _ in range(3000):
            self.engine.turn()
            self.engine.check()
            if not self.scheduler.has_work:
                return
        raise AssertionError("still at work")

    def account(self, id: str = "acme"):
        return next(ledger for ledger in self.pool.accounts if ledger.id == id)

    def _hear(self, outcomes: list[Outcome]) -> None:
        for log, event in outcomes:
            heard = self._heard[log]
            assert not isinstance(event, Error), event
            assert heard.finished is None, "something after the end"
            if isinstance(event, Delta):
                heard.tokens.setdefault(event.index, []).extend(event.token_ids)
                heard.text += event.text
            elif isinstance(event, Started):
                heard.started = event
            elif isinstance(event, Finished):
                heard.finished = event

    def _count(self, step: Step, seconds: float) -> None:
        self.steps += 1
        self.drafted += step.drafted
        self.accepted += step.accepted


class Scripted:
    """A Drafter that is told what each text goes on with, and spoils some of it.

    answers: by (prompt, sampler). spoiled: which positions of the sequence get another token.
    """

    def __init__(
        self,
        answers: dict[tuple[tuple[int, ...], Sampler], list[int]],
        spoiled: Callable[[int], bool] = lambda position: False,
    ) -> None:
        self.asked: list[tuple[str, int]] = []
        self._answers = answers
        self._spoiled = spoiled

    def propose(
        self, sequences: Sequence[Answering], chunks: Sequence[Chunk], most: Sequence[int]
    ) -> list[Sequence[int]]:
        return [self._drafts(sequence, count) for sequence, count in zip(sequences, most, strict=True)]

    def _drafts(self, sequence: Answering, most: int) -> list[int]:
        self.asked.append((sequence.request.account, most))
        begin = sequence.output_length
        known = self._answers.get((tuple(sequence.tokens[: sequence.prompt_length]), sequence.sampler), [])
        places = enumerate(known[begin : begin + most], start=len(sequence.tokens))
        return [token ^ 1 if self._spoiled(position) else token for position, token in places]
