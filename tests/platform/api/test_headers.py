"""Headers: a request id on every answer there is, and where there are limits, how they stand."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from asking import chat, text

from pagoda.api import application
from pagoda.api.limit_errors import duration

BIG = {"content": b"x" * (2 << 20), "headers": {"content-type": "application/json"}}
ANSWERS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "models": ("GET", "/models", {}, 200),
    "an answer": ("POST", "/chat/completions", {"json": chat(max_tokens=2)}, 200),
    "a stream": ("POST", "/chat/completions", {"json": chat(max_tokens=2, stream=True)}, 200),
    "a completion's stream": ("POST", "/completions", {"json": text(max_tokens=2, stream=True)}, 200),
    "tokens": ("POST", "/tokenize", {"json": {"model": "echo", "prompt": "x"}}, 200),
    "files": ("GET", "/files", {}, 200),
    "batches": ("GET", "/batches", {}, 200),
    "the description": ("GET", "/openapi.json", {}, 200),
    "the page": ("GET", "/docs", {}, 200),
    "malformed": ("POST", "/chat/completions", {"json": {}}, 400),
    "no JSON": ("POST", "/chat/completions", {"content": b"{"}, 415),
    "no key": ("GET", "/models", {"headers": {"authorization": ""}}, 401),
    "no such model": ("POST", "/chat/completions", {"json": chat(model="x")}, 404),
    "no such address": ("GET", "/nothing", {}, 404),
    "another method": ("DELETE", "/models", {}, 405),
    "options": ("OPTIONS", "/models", {}, 405),
    "too large": ("POST", "/chat/completions", BIG, 413),
}


@pytest.mark.parametrize("what", ANSWERS)
async def test_every_answer_has_a_request_id_of_its_own(http: Any, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(application, "MAX_BODY_BYTES", 1 << 20)
    method, path, sent, status = ANSWERS[what]
    answers = [await http.request(method, path, **sent) for _ in range(2)]
    assert {answer.status_code for answer in answers} == {status}, answers[0].text
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 2
    assert all(id.startswith("req_") for id in ids)
    assert {answer.headers["x-content-type-options"] for answer in answers} == {"nosniff"}
    assert all("no-" in answer.headers["cache-control"] for answer in answers)
    assert not any("set-cookie" in answer.headers for answer in answers)


class TestLimits:
    """A key with limits per minute, and a pool that is smaller than the context."""

    @pytest.fixture
    def engine_options(self) -> dict[str, Any]:
        return {"pool_tokens": 512}

    @pytest.mark.parametrize("stream", [True, False])
    async def test_they_are_told_where_they_are_reached_and_where_the_engine_refuses(
        self, site: str, make_key: Any, acme: Any, stream: bool
    ) -> None:
        _, of_key = await make_key(acme, requests_per_minute=1, tokens_per_minute=9000)
        headers = {"authorization": f"Bearer {of_key}"}
        async with httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as client:
            address = f"{site}/v1/chat/completions"
            beyond = await client.post(address, json=chat("x" * 1000, stream=stream))
            first = await client.post(address, json=chat(max_tokens=2, stream=stream))
            second = await client.post(address, json=chat(max_tokens=2, stream=stream))
        codes = [answer.json()["error"]["code"] for answer in (beyond, second)]
        assert (codes, first.status_code) == (["kv_limit_exceeded", "rate_limit_exceeded"], 200)
        for answer in (beyond, first, second):
            assert answer.headers["x-ratelimit-limit-requests"] == "1"
            assert answer.headers["x-ratelimit-remaining-requests"] == "0"
            assert answer.headers["x-ratelimit-limit-tokens"] == "9000"
            assert answer.headers["x-ratelimit-reset-requests"].endswith("s")
        assert int(second.headers["retry-after"]) > 0

    async def test_without_limits_there_is_nothing_to_tell(self, http: Any) -> None:
        answer = await http.post("/chat/completions", json=chat(max_tokens=2))
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0ms"), (0.25, "250ms"), (1, "1s"), (59.4, "59s"), (60, "1m0s"), (360, "6m0s"), (3661, "1h1m1s")],
)
def test_times_are_written_as_openai_writes_them(seconds: float, told: str) -> None:
    assert duration(seconds) == told
