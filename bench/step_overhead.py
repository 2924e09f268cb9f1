"""What a step of the engine takes beside the model: scheduling, building the batch, sampling, text, events.

The engine is the daemon's own, driven turn by turn in this process. Its parts are timed from outside, by wrappers
around the methods that it calls; what is left of a turn beside the model's forward pass is the overhead.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.workloads import random_tokens
from pagoda_inference.daemon import Loaded, load
from pagoda_inference.engine import Engine
from pagoda_inference.generation_store import GenerationStore
from pagoda_inference.metrics import Metrics
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import Generate, Sampling
from pagoda_inference.scheduling.step import Step
from pagoda_inference.settings import Settings

PROMPT_TOKENS, OUTPUT_TOKENS = 64, 512
TENANTS = 32
WARM_UP_STEPS = 8
ECHO = "echo"
GREEDY, SAMPLED = Sampling(temperature=0.0), Sampling(temperature=0.8, top_p=0.95)


@dataclass
class Steps:
    """Seconds of each step: whole, of the model in it, and of the named parts beside it."""

    whole: list[float] = field(default_factory=list)
    model: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)

    @property
    def overhead(self) -> list[float]:
        return [whole - model for whole, model in zip(self.whole, self.model, strict=True)]

    @property
    def ratios(self) -> list[float]:
        """Overhead over the whole step."""
        return [own / whole for own, whole in zip(self.overhead, self.whole, strict=True)]

    def add(self, whole: float, parts: dict[str, float]) -> None:
        """One step. What of ``run`` (of the backend) is neither model nor sampling is the building of the batch."""
        self.whole.append(whole)
        self.model.append(parts.pop("model", 0.0))
        if "run" in parts:
            parts["batch"] = parts.pop("run") - self.model[-1] - parts.get("sample", 0.0)
        for part, seconds in parts.items():
            self.parts.setdefault(part, []).append(seconds)


class Clock:
    """Adds up the seconds spent in wrapped methods, by part, until they are taken."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def wrapped(self, owner: Any, name: str, part: str) -> Iterator[None]:
        """While entered, calls of ``owner.name`` count as ``part``."""
        original = getattr(owner, name)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            begin = time.perf_counter()
            try:
                return original(*arguments, **keywords)
            finally:
                self._seconds[part] = self._seconds.get(part, 0.0) + time.perf_counter() - begin

        setattr(owner, name, timed)
        try:
            yield
        finally:
            setattr(owner, name, original)

    def take(self) -> dict[str, float]:
        seconds, self._seconds = self._seconds, {}
        return seconds


def measure(batch: int, steps: int, sampling: Sampling, *, model: str = "", dtype: str = "auto") -> Steps:
    """Steps in which ``batch`` requests decode, and nothing else. model: as PAGODA_MODEL; "" is the default model."""
    store = GenerationStore(max_bytes=1 << 40)
    settings = Settings(
        home=Settings.read().home,
        model=model,
        dtype=dtype,
        max_running=batch,
        token_budget=max(512, batch),
        pool_tokens=batch * (PROMPT_TOKENS + OUTPUT_TOKENS + 64),
        host_gib=0.0,
        step_target_ms=0.0,
    )
    loaded = load(settings, store.deliver, Metrics())
    _submit(loaded, store, batch, sampling)
    gc.collect()
    gc.freeze()  # as the daemon does
    try:
        return _run(loaded.engine, batch, steps)
    finally:
        gc.unfreeze()


def _submit(loaded: Loaded, store: GenerationStore, batch: int, sampling: Sampling) -> None:
    rng = random.Random(7)
    info = loaded.info
    for number in range(batch):
        if info.id == ECHO:
            prompt = [rng.randrange(32, 127) for _ in range(PROMPT_TOKENS)]
        else:
            prompt = random_tokens(PROMPT_TOKENS, rng)
        tenant = f"tenant-{number % TENANTS}"
        command = Generate(
            id=str(number),
            account=tenant,
            scope=f"tenant:{tenant}",
            prompt_token_ids=tuple(prompt),
            sampling=Sampling(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=OUTPUT_TOKENS,
                ignore_eos=True,
                seed=number,
            ),
            request_class="api",
        )
        log = store.create((tenant, command.id))
        loaded.engine.submit(
            prepare(
                command,
                log,
                loaded.tokenizer,
                context_length=info.context_length,
                vocabulary_size=info.vocabulary_size,
            )
        )


def _run(engine: Engine, batch: int, steps: int) -> Steps:
    """Raises RuntimeError if the requests never come to decode together."""
    clock, taken = Clock(), Steps()
    last: list[Step] = []
    engine._observer.step = lambda step, seconds: last.append(step)
    with ExitStack() as stack:
        for owner, name, part in _parts(engine):
            stack.enter_context(clock.wrapped(owner, name, part))
        warm = 0
        for _ in range(OUTPUT_TOKENS):
            last.clear()
            clock.take()
            begin = time.perf_counter()
            engine.turn()
            seconds = time.perf_counter() - begin
            if not last or len(last[0].chunks) != batch or any(chunk.count > 1 for chunk in last[0].chunks):
                continue
            warm += 1
            if warm > WARM_UP_STEPS:
                taken.add(seconds, clock.take())
            if len(taken.whole) == steps:
                return taken
    raise RuntimeError(f"{batch} requests did not decode together for {steps} steps")


def _parts(engine: Engine) -> list[tuple[Any, str, str]]:
    """(owner, name of its method, the part that it is)."""
    scheduler, backend = engine._scheduler, engine._backend
    parts: list[tuple[Any, str, str]] = [
        (scheduler, "schedule", "schedule"),
        (scheduler, "complete", "complete"),
        (engine, "_take", "emit"),
        (engine, "_deliver", "deliver"),
    ]
    if backend.fingerprint == ECHO:
        return [*parts, (backend, "run", "model")]
    from pagoda_inference.model import transformers_backend

    return [
        *parts,
        (backend._model, "forward", "model"),  # type: ignore[attr-defined]
        (transformers_backend, "choose", "sample"),
        (backend, "run", "run"),
    ]
