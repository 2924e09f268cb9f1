"""Batches as their clients meet them: over HTTP, carried out by a runner on the test's loop, with two tenants."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "api"))
sys.path.insert(0, str(Path(__file__).parent))


from web_process import engine, engine_options, step_ms, titles_asked

from pagoda.batches import tasks
from tests.platform.api.conftest import client, http, key, make_key, rival_client, rival_key, site

__all__ = [
    "client",
    "engine",
    "engine_options",
    "http",
    "key",
    "make_key",
    "rival_client",
    "rival_key",
    "site",
    "step_ms",
    "titles_asked",
]

Submit = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have gone to the broker."""
    asked: list[str] = []
    monkeypatch.setattr(tasks.run_batches, "delay", lambda: asked.append("batches.run"))
    return asked


@pytest.fixture
def submit(client: AsyncOpenAI) -> Submit:
    """Uploads lines and makes a batch of them, with acme's key."""

    async def make(lines: Iterable[dict[str, Any] | str], endpoint: Any = "/v1/chat/completions", **fields: Any) -> Any:
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        file = await client.files.create(file=("input.jsonl", text.encode()), purpose="batch")
        return await client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields)

    return make
