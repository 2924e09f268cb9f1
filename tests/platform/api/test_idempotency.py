"""Idempotency-Key: once, and the same answer again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from asking import chat, has_written, read, records, until
from django.utils import timezone
from engine_at_hand import long_question

from pagoda.api import idempotency
from pagoda.api.models import IdempotentCall
from pagoda.tenants.keys import revoke_key


@pytest.fixture
def step_ms() -> float:
    return 2


def with_key(name: str = "abc-1") -> dict[str, str]:
    return {"idempotency-key": name}


async def test_the_same_call_again_gives_the_same_answer_and_is_billed_once(http: Any, acme: Any) -> None:
    body = chat(temperature=1.5)
    first = await http.post("/chat/completions", json=body, headers=with_key())
    again = await http.post("/chat/completions", json=body, headers=with_key())
    other = await http.post("/chat/completions", json=body, headers=with_key("abc-2"))
    assert first.status_code == 200
    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert other.json()["id"] != first.json()["id"]
    assert len(await read(records)(acme.tenant)) == 2


async def test_a_stream_is_replayed_as_a_stream_of_the_same_events(http: Any, acme: Any) -> None:
    body = chat(stream=True, temperature=1.5)
    first = await http.post("/chat/completions", json=body, headers=with_key())
    again = await http.post("/chat/completions", json=body, headers=with_key())
    assert first.content.endswith(b"data: [DONE]\n\n")
    assert again.content == first.content
    assert again.headers["content-type"] == "text/event-stream"
    assert len(await read(records)(acme.tenant)) == 1


async def test_two_tenants_with_the_same_key_do_not_meet(http: Any, site: str, rival_key: str) -> None:
    first = await http.post("/chat/completions", json=chat(), headers=with_key())
    theirs = await http.post(
        "/chat/completions", json=chat(), headers=with_key() | {"authorization": f"Bearer {rival_key}"}
    )
    assert theirs.status_code == 200
    assert theirs.json()["id"] != first.json()["id"]


async def test_another_body_under_the_same_key_is_refused(http: Any) -> None:
    await http.post("/chat/completions", json=chat(), headers=with_key())
    other = await http.post("/chat/completions", json=chat("Why?"), headers=with_key())
    assert other.status_code == 400
    assert other.json()["error"]["code"] == "idempotency_key_reused"


async def test_while_the_first_is_in_flight_the_second_is_told_to_wait(http: Any) -> None:
    body = chat(ignore_eos=True, max_tokens=1500)
    first = asyncio.create_task(http.post("/chat/completions", json=body, headers=with_key()))

    async def is_claimed() -> bool:
        return await read(IdempotentCall.across_tenants.exists)()

    await until(is_claimed)
    second = await http.post("/chat/completions", json=body, headers=with_key())
    assert second.status_code == 409
    assert second.json()["error"]["code"] == "idempotency_in_progress"
    assert int(second.headers["retry-after"]) > 0
    assert (await first).status_code == 200
    assert (await http.post("/chat/completions", json=body, headers=with_key())).content == (await first).content


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_that_was_hung_up_frees_its_key_and_is_billed_all_the_same(
    site: str, key: str, http: Any, engine: str, acme: Any, rival: Any, stream: bool
) -> None:
    body = chat(ignore_eos=True, max_tokens=2000, stream=stream)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, trust_env=False) as client:
        sending = asyncio.create_task(client.post(f"{site}/v1/chat/completions", json=body, headers=with_key()))
        await until(lambda: has_written(engine, acme.tenant))
        sending.cancel()
        await asyncio.wait([sending])

    async def is_free() -> bool:
        return not await read(IdempotentCall.across_tenants.exists)() and bool(await read(records)(acme.tenant))

    await until(is_free)
    answer = await http.post("/chat/completions", json=chat(), headers=with_key())
    assert answer.status_code == 200
    first, second = await read(records)(acme.tenant)
    assert 0 < first.output_tokens < 2000
    assert second.output_tokens == answer.json()["usage"]["completion_tokens"]
    assert await read(records)(rival.tenant) == []


async def test_a_fault_of_the_server_frees_the_key(http: Any, settings: Any, engine: str) -> None:
    settings.PAGODA_ENGINES = []
    failed = await http.post("/chat/completions", json=chat(), headers=with_key())
    settings.PAGODA_ENGINES = [engine]
    assert failed.status_code == 503
    again = await http.post("/chat/completions", json=chat(), headers=with_key())
    assert (again.status_code, "idempotent-replayed" in again.headers) == (200, False)


class TestFailing:
    """Answers that take long enough to revoke a key meanwhile."""

    @pytest.fixture
    def step_ms(self) -> float:
        return 50

    @pytest.mark.parametrize("path", ["chat/completions", "responses"])
    async def test_a_stream_that_ends_in_an_error_frees_the_key(
        self, site: str, http: Any, make_key: Any, acme: Any, path: str
    ) -> None:
        """The API key that it was asked with is revoked; the tenant's next one asks again under the same key."""
        body: dict[str, Any] = {"model": "echo", "input": long_question(), "stream": True, "temperature": 0}
        if path == "chat/completions":
            body = chat(long_question(), stream=True)
        row, text = await make_key(acme)
        client = httpx.AsyncClient(headers={"authorization": f"Bearer {text}"}, timeout=30, trust_env=False)
        asking = client.stream("POST", f"{site}/v1/{path}", json=body, headers=with_key())
        async with client, asking as response:
            lines = aiter(response.aiter_lines())
            await anext(lines)
            await read(revoke_key)(row, who=acme.admin)
            while '"code":"invalid_api_key"' not in await anext(lines):
                pass
            # As soon as the error is heard of: the stream is not even read to its end.
            async with http.stream("POST", f"/{path}", json=body, headers=with_key()) as again:
                assert (again.status_code, "idempotent-replayed" in again.headers) == (200, False)


@pytest.mark.parametrize("path", ["completions", "responses"])
async def test_other_streams_are_replayed_too(http: Any, acme: Any, path: str) -> None:
    body = {"model": "echo", "stream": True, "temperature": 1.5}
    body |= {"prompt": "Once"} if path == "completions" else {"input": "Once"}
    first = await http.post(f"/{path}", json=body, headers=with_key())
    again = await http.post(f"/{path}", json=body, headers=with_key())
    assert first.status_code == 200
    assert again.content == first.content
    assert again.headers["content-type"] == "text/event-stream"
    assert len(await read(records)(acme.tenant)) == 1


async def test_a_key_in_flight_is_told_apart_from_one_of_another_call(http: Any) -> None:
    first = asyncio.create_task(
        http.post("/chat/completions", json=chat(ignore_eos=True, max_tokens=200), headers=with_key())
    )
    await until(read(IdempotentCall.across_tenants.exists))
    other = await http.post("/chat/completions", json=chat("Why?"), headers=with_key())
    assert (other.status_code, other.json()["error"]["code"]) == (400, "idempotency_key_reused")
    assert (await first).status_code == 200


async def test_an_error_of_the_request_is_replayed_and_one_of_a_limit_is_not(
    http: Any, make_key: Any, acme: Any
) -> None:
    refused = [await http.post("/chat/completions", json=chat(model="other"), headers=with_key("e")) for _ in range(2)]
    assert [each.status_code for each in refused] == [404, 404]
    assert refused[1].headers["idempotent-replayed"] == "true"
    _, text = await make_key(acme, requests_per_minute=1)
    limited = {"authorization": f"Bearer {text}"}
    assert (await http.post("/chat/completions", json=chat(), headers=limited)).status_code == 200
    assert (await http.post("/chat/completions", json=chat(), headers=limited | with_key("l"))).status_code == 429
    assert (await http.post("/chat/completions", json=chat(), headers=with_key("l"))).status_code == 200


async def test_keys_are_forgotten_after_a_day(http: Any) -> None:
    first = await http.post("/chat/completions", json=chat(), headers=with_key())
    await read(IdempotentCall.across_tenants.update)(created=timezone.now() - timedelta(hours=25))
    again = await http.post("/chat/completions", json=chat(), headers=with_key())
    assert again.json()["id"] != first.json()["id"]
    await read(IdempotentCall.across_tenants.update)(created=timezone.now() - timedelta(hours=25))
    assert await read(idempotency.forget_old)() == 1


async def test_a_call_whose_process_died_is_carried_out_by_the_next_one(http: Any) -> None:
    await http.post("/chat/completions", json=chat(), headers=with_key())
    await read(IdempotentCall.across_tenants.update)(status=0, held_until=timezone.now() - timedelta(seconds=1))
    assert (await http.post("/chat/completions", json=chat(), headers=with_key())).status_code == 200


@pytest.mark.parametrize("text", ["", "x" * 256, "a\tb"])
async def test_a_key_that_is_none_is_refused(http: Any, text: str) -> None:
    answer = await http.post("/chat/completions", json=chat(), headers=with_key(text))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Idempotency-Key")
