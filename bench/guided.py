"""Answers that follow JSON schemas: how many end, whether they are valid, and what a token costs over one without.

The engine is the daemon's own with the default model, driven turn by turn. Validity is judged by another library,
jsonschema-rs, on the text that a caller gets. Rounds with and without a grammar alternate.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import msgspec

from bench.guided_schemas import SCHEMAS
from bench.progress import progress
from bench.results import Results
from pagoda_inference.daemon import Loaded, load
from pagoda_inference.decoding.grammars import Grammars
from pagoda_inference.engine import Outcome
from pagoda_inference.generation_log import GenerationLog, Ledger
from pagoda_inference.metrics import Metrics
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import ChatMessage, Delta, Error, Finished, Generate, Grammar, Sampling
from pagoda_inference.scheduling.step import Step
from pagoda_inference.settings import Settings

MOST_TOKENS = 256
TEMPERATURES = (0.0, 0.7)
WIDTHS = (1, 8)
TIMED_TOKENS, QUICK_TIMED_TOKENS = 128, 48
LONG_LIST = {
    "type": "array",
    "minItems": 100,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Z][a-z]{2,11}$"},
            "kind": {"enum": ["city", "river", "mountain"]},
            "rank": {"type": "integer", "minimum": 1, "maximum": 1000},
        },
        "required": ["name", "kind", "rank"],
        "additionalProperties": False,
    },
}
"""Of more tokens than any answer here has, so that every timed step has all answers in it."""
QUESTION = "List the places that you know, with their kinds and ranks, as JSON."


@dataclass
class Told:
    """One answer: its text, its tokens, why it ended."""

    text: str = ""
    tokens: int = 0
    reason: str = ""


class Driver:
    """One engine with the default model."""

    def __init__(self, dtype: str) -> None:
        settings = Settings(
            home=Settings.read().home, dtype=dtype, pool_tokens=32768, host_gib=0.0, step_target_ms=0.0, speculate="off"
        )
        self._told: dict[GenerationLog, Told] = {}
        self._running = 0
        self._steps: list[Step] = []
        self._ids = itertools.count()
        self.loaded: Loaded = load(settings, self._hear, Metrics())
        self.loaded.engine._observer.step = lambda step, seconds: self._steps.append(step)
        self.grammars = Grammars(self.loaded.tokenizer.grammar_tokenizer, self.loaded.info.vocabulary_size)

    def ask(self, question: str, sampling: Sampling) -> Told:
        number = str(next(self._ids))
        command = Generate(
            id=number,
            account="bench",
            scope=f"user:bench:{number}",  # nobody finds another round's blocks
            messages=(ChatMessage("user", question),),
            sampling=sampling,
        )
        log = GenerationLog(("bench", number), Ledger())
        told = self._told[log] = Told()
        info = self.loaded.info
        sizes = {"context_length": info.context_length, "vocabulary_size": info.vocabulary_size}
        self.loaded.engine.submit(prepare(command, log, self.loaded.tokenizer, **sizes, grammars=self.grammars))
        self._running += 1
        return told

    def run(self, width: int = 0) -> list[float]:
        """Until all answers have ended: the seconds of each step in which ``width`` answers decoded and nothing else
        was done."""
        seconds = []
        while self._running:
            self._steps.clear()
            begin = time.perf_counter()
            self.loaded.engine.turn()
            took = time.perf_counter() - begin
            for step in self._steps:
                if len(step.chunks) == width and all(chunk.count == 1 for chunk in step.chunks):
                    seconds.append(took)
        return seconds

    def _hear(self, outcomes: list[Outcome]) -> None:
        for log, event in outcomes:
            told = self._told[log]
            if isinstance(event, Delta):
                told.text += event.text
                told.tokens += len(event.token_ids)
            elif isinstance(event, Finished):
                told.reason = event.reason
                self._running -= 1
            elif isinstance(event, Error):
                raise RuntimeError(event.message)


def run(results: Results, options: argparse.Namespace) -> None:
    driver = Driver(options.dtype)
    try:
        measure_compilation(results, driver)
        for temperature in TEMPERATURES:
            measure_validity(results, driver, temperature)
        rounds = options.repeats or (1 if options.quick else 5)
        tokens = QUICK_TIMED_TOKENS if options.quick else TIMED_TOKENS
        for width in WIDTHS:
            measure_cost(results, driver, width, rounds, tokens)
    finally:
        driver.grammars.close()


def grammar_of(schema: dict[str, Any]) -> Grammar:
    return Grammar("json_schema", json.dumps(schema))


def measure_compilation(results: Results, driver: Driver) -> None:
    """Milliseconds of a grammar that is not known yet; the first one has the tokenizer's and a process's start."""
    driver.grammars.compiled(Grammar("regex", "ready"))
    taken = []
    for _, schema in SCHEMAS.values():
        begin = time.perf_counter()
        driver.grammars.compiled(grammar_of(schema))
        taken.append(1000 * (time.perf_counter() - begin))
    results.add("compiling a schema", taken, unit="ms")


def measure_validity(results: Results, driver: Driver, temperature: float) -> None:
    """All schemas at once."""
    answers: dict[str, Told] = {}
    for seed, (name, (question, schema)) in enumerate(SCHEMAS.items()):
        sampling = Sampling(temperature=temperature, seed=seed, max_tokens=MOST_TOKENS, grammar=grammar_of(schema))
        answers[name] = driver.ask(f"{question} Answer in JSON.", sampling)
    driver.run()
    ended = {name: told for name, told in answers.items() if told.reason == "stop"}
    invalid = [name for name, told in ended.items() if not is_valid(told.text, SCHEMAS[name][1])]
    where = f"temperature {temperature:g}"
    results.add(f"{where}: answers that end, of {len(SCHEMAS)}", len(ended), goal=">=27")
    results.add(f"{where}: valid of those that end", 1 - len(invalid) / max(1, len(ended)), goal=">=1")
    results.add(f"{where}: tokens of those that end", [told.tokens for told in ended.values()])
    results.add_value(f"{where}: invalid", invalid)
    results.add_value(f"{where}: cut short", sorted(set(answers) - set(ended)))


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    try:
        return bool(jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(json.loads(text)))
    except ValueError:
        return False


def measure_cost(results: Results, driver: Driver, width: int, rounds: int, tokens: int) -> None:
    """Time of a step in which ``width`` answers get a token each, with a grammar and without."""
    plain = Sampling(temperature=0.7, max_tokens=tokens, ignore_eos=True)
    guided = msgspec.structs.replace(plain, ignore_eos=False, grammar=grammar_of(LONG_LIST))
    medians: dict[Sampling, list[float]] = {plain: [], guided: []}
    for number in progress(range(rounds), f"{width} at once"):
        for sampling in (plain, guided) if number % 2 else (guided, plain):
            for seed in range(width):
                driver.ask(QUESTION, msgspec.structs.replace(sampling, seed=seed))
            medians[sampling].append(1000 * statistics.median(driver.run(width)))
    results.add(f"{width} at once: a token without a grammar", medians[plain], unit="ms")
    results.add(f"{width} at once: a token with one", medians[guided], unit="ms")
    ratios = [with_one / without for with_one, without in zip(medians[guided], medians[plain], strict=True)]
    results.add(f"{width} at once: with over without", ratios, goal="<=1.3")
