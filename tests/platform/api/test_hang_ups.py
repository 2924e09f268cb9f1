"""Callers that go away: what they held is free within a second, and what they used is in the ledger."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from asking import blocks_in_use, chat, generations, has_written, holds, read, records, text, until

LONG = {"ignore_eos": True, "max_tokens": 2000}
TOKENS_OF_A_SECOND = 200
"""At 5 ms a step: a clock that stands still with the engine when the machine is busy."""


@pytest.fixture
def step_ms() -> float:
    return 5


def client_of(key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, trust_env=False)


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_that_hangs_up_frees_its_blocks_and_is_billed_for_what_it_used(
    site: str, key: str, engine: str, acme: Any, rival: Any, path: str, stream: bool
) -> None:
    body = (chat(**LONG) if path.startswith("chat") else text(**LONG)) | {"stream": stream}
    async with client_of(key) as client:
        request = client.build_request("POST", f"{site}/v1/{path}", json=body)
        if stream:
            response = await client.send(request, stream=True)
            lines = response.aiter_lines()
            while "text" not in (line := await anext(lines)) and '"content":"' not in line:
                pass
        else:
            sending = asyncio.create_task(client.send(request))
            await until(lambda: has_written(engine, acme.tenant))
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending

    async def is_free() -> bool:
        return await blocks_in_use(engine, acme.tenant) == 0

    await until(is_free)

    async def is_settled() -> bool:
        return bool(await read(records)(acme.tenant))

    await until(is_settled)
    (record,) = await read(records)(acme.tenant)
    (generation,) = await read(generations)(acme.tenant)
    assert 0 < record.output_tokens < TOKENS_OF_A_SECOND
    assert (generation.state, generation.text) == ("cancelled", "")
    assert record.output_tokens == generation.output_tokens
    assert await read(holds)(acme.tenant) == 0
    assert await read(records)(rival.tenant) == []


async def test_a_hang_up_ends_the_answers_to_all_prompts(site: str, key: str, engine: str, acme: Any) -> None:
    body = text(["one", "two", "three"], stream=True, **LONG)
    async with client_of(key) as client, client.stream("POST", f"{site}/v1/completions", json=body) as response:
        await anext(response.aiter_lines())

    async def is_over() -> bool:
        rows = await read(generations)(acme.tenant)
        return all(row.settled for row in rows) and await blocks_in_use(engine, acme.tenant) == 0

    await until(is_over)
    rows = await read(records)(acme.tenant)
    assert len(rows) == 3
    assert all(row.output_tokens < TOKENS_OF_A_SECOND for row in rows)
    assert await read(holds)(acme.tenant) == 0


async def test_a_response_that_is_hung_up_is_settled(site: str, key: str, engine: str, acme: Any) -> None:
    body = {"model": "echo", "input": "Hello", "stream": True, "max_output_tokens": 2000}
    async with client_of(key) as client, client.stream("POST", f"{site}/v1/responses", json=body) as response:
        async for line in response.aiter_lines():
            if "output_text.delta" in line:
                break

    async def is_over() -> bool:
        return all(row.settled for row in await read(generations)(acme.tenant))

    await until(is_over)
    assert len(await read(records)(acme.tenant)) == 1
    assert await blocks_in_use(engine, acme.tenant) == 0


async def test_one_that_hangs_up_before_its_answer_begins_leaves_nothing_behind(
    site: str, key: str, engine: str, acme: Any
) -> None:
    """Over and over, at different moments: between the connection, the row, the engine and the first token."""
    async with client_of(key) as client:
        for number in range(20):
            body = chat(stream=number % 2 == 0, **LONG)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001 * number + 0.001):
                    await client.post(f"{site}/v1/chat/completions", json=body, timeout=None)

    async def is_quiet() -> bool:
        rows = await read(generations)(acme.tenant)
        return all(row.settled for row in rows) and await blocks_in_use(engine, acme.tenant) == 0

    await until(is_quiet)
    assert await read(holds)(acme.tenant) == 0
