"""How requests get into Django and out again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asking import chat


@pytest.mark.parametrize("stream", [True, False])
async def test_requests_begin_no_threads(http: Any, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin one, and to wait for its end, would hold up every other request on the loop."""
    body = chat(max_tokens=3, stream=stream)
    await asyncio.gather(*(http.post("/chat/completions", json=body) for _ in range(8)))
    begun: list[str] = []
    start = threading.Thread.start

    def recorded(thread: threading.Thread) -> None:
        begun.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", recorded)
    answers = await asyncio.gather(*(http.post("/chat/completions", json=body) for _ in range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert begun == []
