"""How requests get into Django and out again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asking import chat

from pagoda.generations.database_threads import THREADS, in_database


@pytest.mark.parametrize("stream", [True, False])
async def test_requests_begin_no_threads(http: Any, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin one, and to wait for its end, would hold up every other request on the loop."""
    body = chat(max_tokens=3, stream=stream)
    await asyncio.gather(*(http.post("/chat/completions", json=body) for _ in range(8)))
    everybody = threading.Barrier(THREADS)
    await asyncio.gather(*(in_database(everybody.wait, 60) for _ in range(THREADS)))  # as many as there will ever be
    begun: list[str] = []
    start = threading.Thread.start

    def recorded(thread: threading.Thread) -> None:
        begun.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", recorded)
    answers = await asyncio.gather(*(http.post("/chat/completions", json=body) for _ in range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert begun == []
