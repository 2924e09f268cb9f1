"""Decoding with drafts looked up in the text, over decoding without, on the same requests in one process.

The engine is the daemon's own, driven turn by turn; rounds with and without drafts alternate. Both must give the same
tokens: answers that differ are counted, and none should.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.progress import progress
from bench.results import Results
from pagoda_inference.daemon import Loaded, load
from pagoda_inference.engine import Outcome
from pagoda_inference.generation_log import GenerationLog, Ledger
from pagoda_inference.metrics import Metrics
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import ChatMessage, Delta, Finished, Generate, Sampling
from pagoda_inference.scheduling.step import Step
from pagoda_inference.settings import Settings

_CITIES = ("Amsterdam", "Bangkok", "Cairo", "Dakar", "Edinburgh", "Florence", "Geneva", "Havana", "Istanbul", "Jakarta")
_LIST = ", ".join(f"{name} {number}" for number, name in enumerate(_CITIES))
REPETITIVE = (
    f"Repeat this list three times, word for word: {_LIST}",
    "Write this text again and change nothing: The first rule is to be kind. The second rule is to be on time. "
    "The third rule is to tell the truth. The fourth rule is to share what you have.",
    "Continue the pattern for a long time: red, green, blue, red, green, blue, red, green, blue,",
)
ORDINARY = (
    "Why is the sky blue?",
    "Tell me a short story about a lighthouse keeper and her dog.",
    "What should I think of when I buy a used bicycle?",
    "Explain to a child how a bridge carries a train.",
    "Give me advice for a first day at a new job.",
    "What is the difference between weather and climate?",
    "How do I cook rice without a rice cooker?",
    "Describe an autumn morning in a small village.",
)
GREEDY, SAMPLED = Sampling(temperature=0.0), Sampling(temperature=0.8, top_p=0.95)
CASES: dict[str, tuple[tuple[str, ...], int, Sampling]] = {
    "repetitive": (REPETITIVE, 1, GREEDY),
    "repetitive sampled": (REPETITIVE, 1, SAMPLED),
    "chat": (ORDINARY[:4], 1, GREEDY),
    "chat sampled": (ORDINARY[:4], 1, SAMPLED),
    "chat x 8": (ORDINARY, 8, SAMPLED),
}
"""Prompts, how many of them run at once, and how tokens are chosen."""
OUTPUT_TOKENS, QUICK_OUTPUT_TOKENS = 128, 64


@dataclass
class Taken:
    """What a round took: seconds of its decode steps, tokens of each answer."""

    seconds: float
    answers: list[tuple[int, ...]]
    drafted: int = 0
    accepted: int = 0


class Driver:
    """One engine, with drafts or without."""

    def __init__(self, dtype: str, output_tokens: int) -> None:
        self._output_tokens = output_tokens
        settings = Settings(
            home=Settings.read().home,
            dtype=dtype,
            pool_tokens=16384,
            host_gib=0.0,
            step_target_ms=0.0,
            speculate="lookup",
        )
        self._tokens: dict[GenerationLog, list[int]] = {}
        self._ended = 0
        self.loaded: Loaded = load(settings, self._hear, Metrics())
        self._speculation = self.loaded.engine._runner._speculation
        self._ids = itertools.count()
        self._steps: list[Step] = []
        self.loaded.engine._observer.step = lambda step, seconds: self._steps.append(step)

    def run(self, prompts: Sequence[str], sampling: Sampling, *, drafts: bool) -> Taken:
        """All prompts at once; only steps in which nobody has a prompt left are timed."""
        engine = self.loaded.engine
        engine._runner._speculation = self._speculation if drafts else None
        logs = [self._submit(text, self._seeded(sampling, seed)) for seed, text in enumerate(prompts)]
        taken = Taken(0.0, [])
        self._ended = 0
        while self._ended < len(prompts):
            self._steps.clear()
            begin = time.perf_counter()
            engine.turn()
            seconds = time.perf_counter() - begin
            for step in self._steps:
                taken.drafted += step.drafted
                taken.accepted += step.accepted
                if all(chunk.count == 1 for chunk in step.chunks):
                    taken.seconds += seconds
        taken.answers = [tuple(self._tokens.pop(log)) for log in logs]
        return taken

    def _submit(self, text: str, sampling: Sampling) -> GenerationLog:
        number = str(next(self._ids))
        command = Generate(
            id=number,
            account="bench",
            scope=f"user:bench:{number}",  # nobody finds another round's blocks
            messages=(ChatMessage("user", text),),
            sampling=sampling,
        )
        log = GenerationLog(("bench", number), Ledger())
        self._tokens[log] = []
        info, tokenizer = self.loaded.info, self.loaded.tokenizer
        sizes = {"context_length": info.context_length, "vocabulary_size": info.vocabulary_size}
        self.loaded.engine.submit(prepare(command, log, tokenizer, **sizes))
        return log

    def _seeded(self, sampling: Sampling, seed: int) -> Sampling:
        return Sampling(
            temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=self._output_tokens, seed=seed
        )

    def _hear(self, outcomes: list[Outcome]) -> None:
        for log, event in outcomes:
            if isinstance(event, Delta):
                self._tokens[log] += event.token_ids
            elif isinstance(event, Finished):
                self._ended += 1


def run(results: Results, options: argparse.Namespace) -> None:
    rounds = options.repeats or (1 if options.quick else 5)
    driver = Driver(options.dtype, QUICK_OUTPUT_TOKENS if options.quick else OUTPUT_TOKENS)
    costs = driver._speculation._costs  # type: ignore[union-attr]
    for part, seconds in (("base", costs.base_s), ("row", costs.row_s), ("draft", costs.draft_s)):
        results.add(f"cost of {part}", 1000 * seconds, unit="ms")
    for name, (prompts, width, sampling) in CASES.items():
        ratios, plain_rate, rate, shares, different = [], [], [], [], 0
        for number in progress(range(rounds), name):
            for begin in range(0, len(prompts), width):
                batch = prompts[begin : begin + width]
                order = (False, True) if (number + begin) % 2 else (True, False)
                taken = {drafts: driver.run(batch, sampling, drafts=drafts) for drafts in order}
                tokens = {drafts: sum(map(len, each.answers)) for drafts, each in taken.items()}
                rates = {drafts: tokens[drafts] / each.seconds for drafts, each in taken.items()}
                different += sum(a != b for a, b in zip(taken[True].answers, taken[False].answers, strict=True))
                ratios.append(rates[True] / rates[False])
                plain_rate.append(rates[False])
                rate.append(rates[True])
                shares.append(taken[True].accepted / max(1, taken[True].drafted))
        results.add(f"{name}: without drafts", plain_rate, unit="tokens/s")
        results.add(f"{name}: with drafts", rate, unit="tokens/s")
        results.add(f"{name}: with over without", ratios, goal=">=1.1" if name.startswith("repetitive") else ">=0.97")
        results.add(f"{name}: share of drafts that were right", statistics.mean(shares))
        results.add(f"{name}: answers that differ", different, goal="<=0")
