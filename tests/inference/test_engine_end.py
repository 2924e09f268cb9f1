"""However the loop ends, what the model runs on ends with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pagoda_inference import daemon
from pagoda_inference.model.backend import Chunk, Result
from pagoda_inference.model.echo import EchoBackend, EchoTokenizer
from pagoda_inference.model.errors import BackendLost
from tests.inference.running_engine import RunningEngine, Tenant, read

POISON = ord("%")


class ClosingBackend(EchoBackend):
    """Says when it was closed; lost with the first poisoned token."""

    closed = 0

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        assert not self.closed, "a step on a model that was closed"
        if any(POISON in chunk.token_ids for chunk in chunks):
            raise BackendLost("Rank 1 of the model has ended.")
        return super().run(chunks)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ClosingBackend:
    made = ClosingBackend(pool_tokens=4096, step_ms=1)

    def load(model: str, **_: Any) -> Any:
        return made, EchoTokenizer(), "closing"

    monkeypatch.setattr(daemon, "load_model", load)
    return made


async def test_a_stopped_engine_closes_its_model(
    backend: ClosingBackend, start_engine: Callable[..., Awaitable[RunningEngine]]
) -> None:
    engine = await start_engine()
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    running = rival.start(max_tokens=1500, ignore_eos=True)
    await read(running, 3)
    assert (await acme.answer(max_tokens=3)).finished.reason == "length"
    assert not backend.closed
    engine.ask_to_stop()
    assert await engine.stopped()
    assert backend.closed == 1


async def test_a_crash_of_the_loop_closes_the_model(
    backend: ClosingBackend, start_engine: Callable[..., Awaitable[RunningEngine]]
) -> None:
    engine = await start_engine()
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    running = rival.start(max_tokens=1500, ignore_eos=True)
    await read(running, 3)
    assert (await acme.answer("100 %", max_tokens=3)).finished.error is not None
    assert (await read(running)).finished.error is not None
    assert not await engine.stopped()
    assert backend.closed == 1
