"""What callers get from an engine whose model runs beside it: all that they get from one that waits for every step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pagoda_inference import daemon
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.echo import EchoBackend, EchoTokenizer
from pagoda_inference.model.launched import Launched
from tests.inference.running_engine import RunningEngine, Tenant
from tests.inference.test_cancel import *  # noqa: F403
from tests.inference.test_generations import *  # noqa: F403
from tests.inference.test_publish_and_purge import *  # noqa: F403
from tests.inference.test_quotas import *  # noqa: F403
from tests.inference.test_several_answers_served import *  # noqa: F403


class EchoBeside(EchoBackend):
    """The KV-echo model on a thread of its own, as if on a device. Steps overlap with nothing but the engine."""

    asynchronous = True
    made: EchoBeside | None = None

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.launched = 0
        self._device = ThreadPoolExecutor(1, "device")
        EchoBeside.made = self

    def launch(self, chunks: Sequence[Chunk]) -> Launched:
        self.launched += 1
        taken = [
            Chunk(
                list(chunk.token_ids), chunk.start, list(chunk.block_table),
                chunk.sampler, chunk.forks, chunk.candidates, chunk.drafts,
            )
            for chunk in chunks
        ]  # fmt: skip
        return Launched(self._device.submit(self.run, taken).result)

    def close(self) -> None:
        self._device.shutdown()


@pytest.fixture
async def start_engine(
    start_engine: Callable[..., Awaitable[RunningEngine]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[RunningEngine]]:
    def load(model: str, *, block_size: int, pool_tokens: int, context_length: int | None, step_ms: float, **_: Any):
        backend = EchoBeside(
            block_size=block_size, pool_tokens=pool_tokens, context_length=context_length or 4096, step_ms=step_ms
        )
        return backend, EchoTokenizer(), "echo"

    monkeypatch.setattr(daemon, "load_model", load)
    return start_engine


async def test_the_steps_of_these_engines_are_launched(acme: Tenant, rival: Tenant) -> None:
    answers = await asyncio.gather(acme.answer(max_tokens=5, ignore_eos=True), rival.answer(max_tokens=3))
    assert [answer.finished.usage.output_tokens for answer in answers] == [5, 3]
    assert EchoBeside.made is not None
    assert EchoBeside.made.launched >= 5
