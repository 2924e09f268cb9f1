"""A model that can run no step any more ends the engine: nobody waits, and the process does not go on without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pagoda_inference import daemon
from pagoda_inference.model.backend import Chunk, Result
from pagoda_inference.model.echo import EchoBackend, EchoTokenizer
from pagoda_inference.model.errors import BackendLost
from tests.inference.running_engine import RunningEngine, Tenant, read

POISON = ord("%")


class MortalBackend(EchoBackend):
    """Lost with the first poisoned token."""

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        if any(POISON in chunk.token_ids for chunk in chunks):
            raise BackendLost("Rank 1 of the model has ended.")
        return super().run(chunks)


async def test_a_lost_backend_ends_the_engine_and_tells_everybody(
    start_engine: Callable[..., Awaitable[RunningEngine]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(model: str, *, block_size: int, pool_tokens: int, **_: Any) -> Any:
        return MortalBackend(block_size=block_size, pool_tokens=pool_tokens, step_ms=1), EchoTokenizer(), "mortal"

    monkeypatch.setattr(daemon, "load_model", load)
    engine = await start_engine()
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    running = rival.start(max_tokens=1500, ignore_eos=True)
    await read(running, 3)
    answers = await asyncio.gather(read(acme.start("100 %", max_tokens=40)), read(running))
    for answer in answers:
        assert answer.finished.error is not None
        assert answer.finished.error.code == "engine_stopping"
    assert not await engine.stopped()
