"""Several prompts in one request: each is a request to limits, and whether all have room is asked before any runs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from asking import generations, holds, read, text

NEVER: dict[str, tuple[dict[str, int], str, tuple[str, ...]]] = {
    "generations at a time": ({"concurrent_generations": 2}, "rate_limit_exceeded", ("16", " 2.")),
    "requests": ({"requests_per_minute": 5}, "rate_limit_exceeded", ("16 requests", "5 a minute")),
    "tokens": ({"tokens_per_minute": 100}, "rate_limit_exceeded", ("tokens", "100 a minute")),
    "the month's budget": ({"monthly_tokens": 150}, "insufficient_quota", ("tokens", "150 a month")),
}


@pytest.mark.parametrize("what", NEVER)
async def test_more_prompts_than_a_limit_will_ever_have_room_for_are_not_worth_another_try(
    site: str, make_key: Any, acme: Any, what: str
) -> None:
    limits, code, told = NEVER[what]
    _, of_key = await make_key(acme, **limits)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {of_key}"}, timeout=30, trust_env=False) as client:
        many = await client.post(f"{site}/v1/completions", json=text(["Hello"] * 16, max_tokens=10))
        one = await client.post(f"{site}/v1/completions", json=text("Hello", max_tokens=10))
    error = many.json()["error"]
    assert (many.status_code, error["code"]) == (429, code)
    assert all(words in error["message"] for words in told), error["message"]
    assert "used" not in error["message"]
    assert "retry-after" not in many.headers
    assert many.headers["x-should-retry"] == "false"
    assert one.status_code == 200
    assert len(await read(generations)(acme.tenant)) == 1
    assert await read(holds)(acme.tenant) == 0


async def test_what_others_have_used_is_told_without_what_is_asked(
    site: str, make_key: Any, acme: Any, rival: Any, rival_key: str
) -> None:
    _, of_key = await make_key(acme, requests_per_minute=20)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {of_key}"}, timeout=30, trust_env=False) as client:
        body = text(["Hello"] * 16, max_tokens=2)
        first = await client.post(f"{site}/v1/completions", json=body)
        second = await client.post(f"{site}/v1/completions", json=body)
        theirs = await client.post(
            f"{site}/v1/completions", json=body, headers={"authorization": f"Bearer {rival_key}"}
        )
    assert (first.status_code, second.status_code, theirs.status_code) == (200, 429, 200)
    assert "16 are used, this needs 16" in second.json()["error"]["message"]
    assert int(second.headers["retry-after"]) > 0


async def test_a_bound_beyond_the_context_asks_for_no_more_than_the_context(
    site: str, make_key: Any, acme: Any
) -> None:
    _, of_key = await make_key(acme, tokens_per_minute=10_000)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {of_key}"}, timeout=30, trust_env=False) as client:
        answer = await client.post(
            f"{site}/v1/completions", json=text(["Hello", "Hi"], max_tokens=10**6, stop=["e", "o", "a", " "])
        )
    assert answer.status_code == 200, answer.text
