"""An engine whose pool is smaller than its model's context: what does not fit is refused, with numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from asking import chat, generations, holds, read, records, text


@pytest.fixture
def engine_options() -> dict[str, Any]:
    return {"pool_tokens": 512}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_beyond_the_pool_is_refused_and_does_not_count(
    site: str, make_key: Any, acme: Any, rival: Any, stream: bool
) -> None:
    _, key = await make_key(acme, requests_per_minute=1, monthly_tokens=100_000)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=30, trust_env=False) as client:
        refused = await client.post(f"{site}/v1/chat/completions", json=chat("x" * 1000, stream=stream))
        answered = await client.post(f"{site}/v1/chat/completions", json=chat(max_tokens=5, stream=stream))
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("kv_limit_exceeded", "messages")
    assert any(character.isdigit() for character in error["message"])
    assert answered.status_code == 200
    assert await read(holds)(acme.tenant) == 0
    assert [row.state for row in await read(generations)(acme.tenant)] == ["failed", "complete"]
    assert len(await read(records)(acme.tenant)) == 1
    assert await read(records)(rival.tenant) == []


async def test_the_field_of_a_prompt_beyond_the_pool_is_named(http: Any) -> None:
    for path, body, field in (
        ("/completions", text(["x", "x" * 1000]), "prompt"),
        ("/responses", {"model": "echo", "input": "x" * 1000}, "input"),
    ):
        error = (await http.post(path, json=body)).json()["error"]
        assert (error["code"], error["param"]) == ("kv_limit_exceeded", field)


@pytest.mark.parametrize("path", ["/chat/completions", "/completions"])
async def test_an_answer_that_grows_to_all_the_memory_there_is_says_so(http: Any, path: str) -> None:
    make = chat if path == "/chat/completions" else text
    long = (await http.post(path, json=make("x" * 100, max_tokens=2000, ignore_eos=True))).json()
    assert long["choices"][0]["finish_reason"] == "length"
    assert long["usage"]["total_tokens"] <= 513
    assert long["usage"]["kv_limit"] == {"limit_blocks": 32, "block_size": 16}
    short = (await http.post(path, json=make("x" * 100, max_tokens=20, ignore_eos=True))).json()
    assert short["choices"][0]["finish_reason"] == "length"
    assert "kv_limit" not in short["usage"]


class TestShortQueue:
    """An engine that lets few requests of a tenant wait."""

    @pytest.fixture
    def engine_options(self) -> dict[str, Any]:
        return {"pool_tokens": 64, "max_waiting": 2}

    @pytest.fixture
    def step_ms(self) -> float:
        """So slow that all are asked before the first have ended, on a busy machine too."""
        return 20

    @pytest.mark.parametrize("stream", [True, False])
    async def test_a_full_queue_is_told_with_a_time_to_come_back(self, http: Any, acme: Any, stream: bool) -> None:
        bodies = [chat(f"{number}", max_tokens=50, ignore_eos=True, stream=stream) for number in range(8)]
        answers = await asyncio.gather(*[http.post("/chat/completions", json=body) for body in bodies])
        full = [answer for answer in answers if answer.status_code == 429]
        assert full
        assert {answer.json()["error"]["code"] for answer in full} == {"queue_full"}
        assert all(int(answer.headers["retry-after"]) > 0 for answer in full)
        assert {answer.status_code for answer in answers} == {200, 429}
        assert len(await read(records)(acme.tenant)) == len(answers) - len(full)
        assert await read(holds)(acme.tenant) == 0
