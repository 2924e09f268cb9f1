"""What the beams of a real model share: beam searches by the engine on MT-bench questions, and the law of them.

The whole engine in this process, with SmolLM2: every question is searched with each width, to an answer of Alpaca's
length. ``beams.width_W.saved`` is the share of blocks that sharing saved, blocks held over blocks that unshared beams
would hold, summed over steps. ``beams.law``: what ``bench.simulation.beams`` has to have for the probabilities that
were seen; ``beams.width_W.simulated`` is what the law in it saves on the same lengths.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.progress import progress
from bench.results import Results
from bench.simulation.beams import RANKS
from bench.simulation.job import Job
from bench.simulation.loop import simulate
from bench.simulation.paged import PagedSystem
from bench.simulation.settings import SMALL
from bench.traces import laws
from bench.traces.errors import TraceMissing
from bench.traces.laws import Workload
from bench.traces.questions import questions
from pagoda_inference.beam_generation import BeamGeneration
from pagoda_inference.daemon import Loaded, load
from pagoda_inference.decoding.beam_search import BeamSearch, Pick
from pagoda_inference.engine import Outcome
from pagoda_inference.generation_store import GenerationStore
from pagoda_inference.metrics import Metrics
from pagoda_inference.model.backend import Candidates
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import ChatMessage, Finished, Generate, Sampling
from pagoda_inference.settings import Settings

WIDTHS = (2, 4, 6)
TENANT = "beams"
AT_ONCE = 8
"""Searches that run together."""
LONGEST_ANSWER = 200
BLOCK = 16
POOL_TOKENS = 65_536


@dataclass
class Seen:
    """Of one width. held, unshared: blocks, summed over searches and steps. steps: of each search, the probabilities of
    the best next tokens of each beam. lengths: (prompt, output) tokens of each search.
    """

    held: int = 0
    unshared: int = 0
    steps: list[list[list[float]]] = field(default_factory=list)
    lengths: list[tuple[int, int]] = field(default_factory=list)

    @property
    def saved(self) -> float:
        """Share of the blocks, 0..1."""
        return 1 - self.held / self.unshared


@dataclass(frozen=True)
class Law:
    """The constants of ``bench.simulation.beams``, estimated from what was seen."""

    confidence: tuple[float, float]
    decay: float
    likeness: float


def run(results: Results, options: argparse.Namespace) -> None:
    try:
        asked = [question.turns[0] for question in questions(options.traces or Path("traces"))]
    except TraceMissing as missing:
        results.skip("beams", f"{missing} (--traces)")
        return
    rng = random.Random(20230917)
    texts = rng.sample(asked, min(len(asked), 8 if options.quick else 32))
    outputs = [min(LONGEST_ANSWER, laws.draw(Workload.ALPACA, rng)[1]) for _ in texts]
    searches = _Searches()
    seen: dict[int, Seen] = {}
    try:
        for width in progress(WIDTHS, "beams"):
            seen[width] = searches.run(texts, outputs, width)
            results.add(f"beams.width_{width}.saved", 100 * seen[width].saved, unit="%")
            results.add(f"beams.width_{width}.simulated", 100 * simulated(seen[width].lengths, width), unit="%")
    finally:
        searches.close()
    law = fitted([step for each in seen.values() for step in each.steps])
    results.add_value("beams.law", law)
    results.add("beams.prompt_tokens", [prompt for prompt, _ in seen[WIDTHS[0]].lengths], unit="tokens")
    results.add("beams.output_tokens", outputs, unit="tokens")


def simulated(lengths: Sequence[tuple[int, int]], width: int) -> float:
    """What the law saves on the same lengths, summed over steps in the same way."""
    held = unshared = 0
    for number, (prompt, output) in enumerate(lengths):
        system = PagedSystem(POOL_TOKENS // BLOCK, BLOCK, seed=number)
        counts: list[tuple[int, int]] = []
        job = Job(0, 0.0, prompt, output, beam_width=width)
        simulate(system, SMALL.cost(), [job], observe=lambda now, work: counts.append(system.sharing()))  # noqa: B023
        held += sum(one for one, _ in counts)
        unshared += sum(other for _, other in counts)
    return 1 - held / unshared


class _Watched(BeamSearch):
    """A search that keeps the probabilities it was given."""

    steps: list[list[list[float]]]

    def advance(self, candidates: Sequence[Candidates]) -> list[Pick]:
        if len(candidates) > 1:
            self.steps.append([[math.exp(logprob) for logprob in each.logprobs] for each in candidates])
        return super().advance(candidates)


class _Searches:
    """The engine, and searches in it."""

    def __init__(self) -> None:
        self._store = GenerationStore(max_bytes=1 << 30)
        self._ended = 0
        settings = Settings(block_size=BLOCK, pool_tokens=POOL_TOKENS, host_gib=0.0)
        self._loaded: Loaded = load(settings, self._deliver, Metrics())

    def run(self, texts: Sequence[str], outputs: Sequence[int], width: int) -> Seen:
        seen = Seen()
        self._ended = submitted = 0
        engine = self._loaded.engine
        waiting = list(zip(texts, outputs, strict=True))
        while self._ended < len(texts):
            while waiting and submitted - self._ended < AT_ONCE:
                submitted += 1
                text, output = waiting.pop()
                prompt = self._submit(f"{width}-{submitted}", text, output, width, seen)
                seen.lengths.append((prompt, output))
            engine.turn()
            for beams in self._tables():
                seen.held += len({block for table in beams for block in table})
                seen.unshared += sum(map(len, beams))
        return seen

    def close(self) -> None:
        self._loaded.engine.close()

    def _tables(self) -> Iterator[list[list[int]]]:
        for request in self._loaded.engine._scheduler.running:
            tables = [beam.table.blocks for beam in request.sequences if beam.table is not None]
            if len(tables) > 1:
                yield tables

    def _submit(self, name: str, text: str, output: int, width: int, seen: Seen) -> int:
        """Tokens of its prompt."""
        info = self._loaded.info
        sampling = Sampling(temperature=0.0, max_tokens=output, beam_width=width, ignore_eos=True)
        command = Generate(
            id=name, account=TENANT, scope=f"tenant:{TENANT}", prompt_token_ids=tuple(self._tokens(text)),
            sampling=sampling,
        )  # fmt: skip
        log = self._store.create((TENANT, name))
        generation = prepare(
            command, log, self._loaded.tokenizer,
            context_length=info.context_length, vocabulary_size=info.vocabulary_size,
        )  # fmt: skip
        assert isinstance(generation, BeamGeneration)
        watched = _Watched(width, max_tokens=output)
        watched.steps = seen.steps
        generation._search = watched
        self._loaded.engine.submit(generation)
        return len(command.prompt_token_ids or ())

    def _tokens(self, text: str) -> list[int]:
        return self._loaded.tokenizer.encode_chat([ChatMessage("user", text)])

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for _, event in outcomes:
            if isinstance(event, Finished):
                if event.error is not None:
                    raise RuntimeError(f"the engine refused a search: {event.error.message}")
                self._ended += 1


def fitted(steps: Sequence[Sequence[Sequence[float]]]) -> Law:
    """Each from what it stands for, none from what it brings about.

    confidence: the Beta law with the mean and variance of the best token's probability. decay: such that the second
    token has its mean share of what the best one leaves. likeness: how the best probabilities of beams of one step
    correlate, which is the share of steps that are alike where the others are independent.
    """
    best = [beam[0] for step in steps for beam in step]
    mean, variance = statistics.fmean(best), statistics.pvariance(best)
    total = mean * (1 - mean) / variance - 1
    pairs = [(beam[0], beam[1]) for step in steps for beam in step if beam[0] < 0.999]
    second = statistics.fmean(two / (1 - one) for one, two in pairs)
    products = [
        (one[0] - mean) * (other[0] - mean)
        for step in steps
        for place, one in enumerate(step)
        for other in step[place + 1 :]
    ]
    likeness = statistics.fmean(products) / variance
    return Law((mean * total, (1 - mean) * total), _decay(second), likeness)


def _decay(second: float) -> float:
    """The exponent at which the first of RANKS ranks has that share, by bisection."""
    low, high = 0.0, 8.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        share = 1 / sum(rank**-middle for rank in range(1, RANKS + 1))
        low, high = (middle, high) if share < second else (low, middle)
    return low
