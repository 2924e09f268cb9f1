"""Bodies that nobody means, by thousands, beside another tenant's answers: nothing breaks, and it notices nothing.

PAGODA_TEST_BODIES: how many (default 1000). PAGODA_SOAK_SEED: where they are drawn from.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import holds, read, text
from engine_at_hand import DaemonProcess, new_address
from fuzzed import Fuzzed, draw

from pagoda.api.errors import ERROR_CODES
from pagoda.engines import connections

pytestmark = pytest.mark.slow

BODIES = int(os.environ.get("PAGODA_TEST_BODIES", "1000"))
SEED = int(os.environ.get("PAGODA_SOAK_SEED", "20261130"))
AT_ONCE = 6
PATIENCE_S = 5.0
"""A request that is answered for longer than this was well-formed by accident, and is hung up."""


class Daemon(DaemonProcess):
    """The engine as a process of its own, which could die."""

    @property
    def pid(self) -> int | None:
        """None: it has ended."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid


@pytest.fixture
async def daemon(home: Path, settings: Any) -> AsyncIterator[Daemon]:
    settings.PAGODA_ENGINES = [new_address()]
    process = Daemon(settings.PAGODA_ENGINES[0], home, step_ms=1)
    await process.start()
    yield process
    await process.stop()


@pytest.fixture
def engine(daemon: Daemon, settings: Any) -> str:
    return str(settings.PAGODA_ENGINES[0])


async def send(http: httpx.AsyncClient, fuzzed: Fuzzed) -> str:
    """The status, or that it was hung up. Fails for what no client may ever see."""
    try:
        answer = await http.post(fuzzed.path, content=fuzzed.body, headers={"content-type": "application/json"})
    except httpx.ReadTimeout:
        return "hung up"
    told = f"{answer.status_code} for {fuzzed.path} {fuzzed.body[:2000]!r}: {answer.text[:500]}"
    assert answer.status_code < 500, told
    assert answer.headers["x-request-id"].startswith("req_"), told
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert ERROR_CODES[error["code"]] == answer.status_code, told
        assert len(answer.content) < 2000, told
    for code in ("internal_error", "model_error", "engine_unavailable"):
        assert f'"code":"{code}"'.encode() not in answer.content, told
    return str(answer.status_code)


async def answer_of(http: httpx.AsyncClient) -> bytes:
    """The text of the rival's greedy stream, byte for byte."""
    body = text("What is a pagoda?", stream=True, max_tokens=600, ignore_eos=True)
    said = ""
    async with http.stream("POST", "/completions", json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                said += "".join(choice["text"] for choice in json.loads(line.removeprefix("data: "))["choices"])
    return said.encode()


@pytest.mark.timeout(3600)
async def test_whatever_is_sent_nothing_breaks_and_a_rival_notices_nothing(
    site: str, engine: str, daemon: Daemon, key: str, rival_key: str, rival: Any
) -> None:
    rng = random.Random(SEED)
    before = (daemon.pid, (await connections.get_client(engine)).instance)

    def client(of: str, patience_s: float) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {of}"}
        return httpx.AsyncClient(base_url=f"{site}/v1", headers=headers, timeout=patience_s, trust_env=False)

    async with client(key, PATIENCE_S) as fuzzing, client(rival_key, 120) as theirs:
        alone = await answer_of(theirs)
        assert len(alone) > 400
        answers: list[bytes] = []
        over = asyncio.Event()

        async def rival_asks() -> None:
            while not over.is_set():
                answers.append(await answer_of(theirs))

        asking = asyncio.create_task(rival_asks())
        waiting: Iterator[Fuzzed] = (draw(rng) for _ in range(BODIES))
        seen: Counter[str] = Counter()

        async def fuzz() -> None:
            for fuzzed in waiting:
                seen[await send(fuzzing, fuzzed)] += 1

        try:
            await asyncio.gather(*(fuzz() for _ in range(AT_ONCE)))
        finally:
            over.set()
            await asking
        # Every one was sent; some were answered, most refused for what they are.
        assert sum(seen.values()) == BODIES
        assert seen["200"] > BODIES // 20
        assert seen["400"] > BODIES // 3
        assert seen["hung up"] < BODIES // 20
        assert answers
        assert set(answers) == {alone}
    assert before[0] is not None
    assert (daemon.pid, (await connections.get_client(engine)).instance) == before
    assert await read(holds)(rival.tenant) == 0
