"""Streams that have nothing to tell yet: comments keep them open, and clients read over those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from asking import blocks_in_use, chat, chunks_of, generations, holds, read, records, said, text, until
from engine_at_hand import echo
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic import SecretStr

from pagoda.api import application
from pagoda.api.keep_alive import COMMENT, KeepAlive, Send
from pagoda.tenants.keys import revoke_key

INTERVAL_S = 0.1
SHORT = "Which one?"
"""What is answered in 22 tokens."""


@pytest.fixture
def step_ms() -> float:
    return 150


@pytest.fixture
def engine_options() -> dict[str, Any]:
    """A pool with room for one answer at a time."""
    return {"pool_tokens": 512}


@pytest.fixture(autouse=True)
def interval(settings: Any) -> None:
    settings.PAGODA_API_KEEP_ALIVE_S = INTERVAL_S


@pytest.fixture
def comments(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The comments that were sent."""
    seen: list[bytes] = []

    def watched(send: Send, interval_s: float) -> KeepAlive:
        async def note(message: Mapping[str, Any]) -> None:
            if message.get("body") == COMMENT:
                seen.append(COMMENT)
            await send(message)

        return KeepAlive(note, interval_s)

    monkeypatch.setattr(application, "KeepAlive", watched)
    return seen


@asynccontextmanager
async def pool_taken(
    client: AsyncOpenAI, engine: str, tenant: Any, comments: list[bytes] | None = None
) -> AsyncIterator[asyncio.Task[Any]]:
    """Somebody's answer, which is given, fills the pool until it is cancelled or this is left.

    It would take 15 s. comments: it is cancelled once there are three of them.
    """
    filling = asyncio.create_task(
        client.chat.completions.create(**chat("x" * 400, max_tokens=100), extra_body={"ignore_eos": True})
    )

    async def is_running() -> bool:
        return await blocks_in_use(engine, tenant) > 0

    async def is_enough() -> bool:
        return comments is not None and len(comments) >= 3

    async def let_go() -> None:
        await until(is_enough)
        filling.cancel()

    await until(is_running)
    letting_go = asyncio.create_task(let_go()) if comments is not None else None
    yield filling
    filling.cancel()
    if letting_go is not None:
        letting_go.cancel()
    await asyncio.wait([filling])


async def lines_of(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], filling: asyncio.Task[Any] | None = None
) -> list[str]:
    """All lines of a stream. filling: what it is queued behind, and its status is not; it ends with three comments."""
    lines: list[str] = []
    async with http.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        assert filling is None or not filling.done()
        async for line in response.aiter_lines():
            lines += [line] if line else []
            if filling is not None and lines.count(": keep-alive") >= 3:
                filling.cancel()
    return lines


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/chat/completions", chat("y" * 100, stream=True, max_tokens=5)),
    "completions": ("/completions", text("y" * 100, stream=True, max_tokens=5)),
    "responses": ("/responses", {"model": "echo", "input": "y" * 100, "stream": True, "max_output_tokens": 5}),
}


@pytest.mark.parametrize("what", BODIES)
async def test_a_stream_that_is_queued_says_that_it_is_alive(
    http: Any, rival_client: AsyncOpenAI, engine: str, rival: Any, what: str
) -> None:
    path, body = BODIES[what]
    async with pool_taken(rival_client, engine, rival.tenant) as filling:
        lines = await lines_of(http, path, body, filling)
    comments = [line for line in lines if line.startswith(":")]
    assert set(comments) == {": keep-alive"}
    assert len(comments) >= 3
    assert [line.split(":")[0] for line in lines if not line.startswith(":")][-1] == "data"
    assert "[DONE]" in lines[-1] or "response.incomplete" in lines[-1]


async def test_a_stream_that_goes_on_has_no_comments(http: Any, settings: Any) -> None:
    settings.PAGODA_API_KEEP_ALIVE_S = 30
    lines = await lines_of(http, *BODIES["chat"])
    assert not any(line.startswith(":") for line in lines)


async def test_openais_client_reads_over_them(
    client: AsyncOpenAI, rival_client: AsyncOpenAI, engine: str, rival: Any, comments: list[bytes]
) -> None:
    async with pool_taken(rival_client, engine, rival.tenant, comments):
        chunks = await chunks_of(await client.chat.completions.create(**chat(SHORT), stream=True))
    assert comments
    comments.clear()
    asked = client.responses.stream(model="echo", input=SHORT, temperature=0)
    async with pool_taken(rival_client, engine, rival.tenant, comments), asked as stream:
        numbers = [event.sequence_number async for event in stream]
        response = await stream.get_final_response()
    assert comments
    assert said(chunks) == response.output_text == echo(SHORT)[1]
    assert numbers == list(range(len(numbers)))


async def test_langchain_reads_over_them(
    site: str, key: str, rival_client: AsyncOpenAI, engine: str, rival: Any, comments: list[bytes]
) -> None:
    model = ChatOpenAI(model="echo", base_url=f"{site}/v1", api_key=SecretStr(key), temperature=0, max_retries=0)
    async with pool_taken(rival_client, engine, rival.tenant, comments):
        pieces = [str(chunk.content) async for chunk in model.astream(SHORT)]
    assert "".join(pieces) == echo(SHORT)[1]
    assert comments


async def test_what_is_refused_at_once_has_a_status_of_its_own(
    http: Any, rival_client: AsyncOpenAI, engine: str, rival: Any, settings: Any
) -> None:
    settings.PAGODA_API_KEEP_ALIVE_S = 30
    async with pool_taken(rival_client, engine, rival.tenant) as filling:
        answer = await http.post("/chat/completions", json=chat("x" * 1000, stream=True))
        assert not filling.done()
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "kv_limit_exceeded")


async def test_what_goes_wrong_in_the_queue_is_the_last_event(
    site: str, make_key: Any, rival_client: AsyncOpenAI, engine: str, acme: Any, rival: Any
) -> None:
    row, text_of_key = await make_key(acme)
    headers = {"authorization": f"Bearer {text_of_key}"}
    path, body = BODIES["chat"]
    async with pool_taken(rival_client, engine, rival.tenant), httpx.AsyncClient(trust_env=False) as http:
        async with http.stream("POST", f"{site}/v1{path}", json=body, headers=headers) as response:
            lines = aiter(response.aiter_lines())
            while await anext(lines) != ": keep-alive":
                pass
            await read(revoke_key)(row, who=acme.admin)
            rest = [line async for line in lines if line.startswith("data")]
        assert await blocks_in_use(engine, rival.tenant) > 0
    assert '"code":"invalid_api_key"' in rest[-1]
    assert await read(holds)(acme.tenant) == 0


async def test_whoever_leaves_the_queue_leaves_nothing_behind(
    http: Any, rival_client: AsyncOpenAI, engine: str, acme: Any, rival: Any
) -> None:
    path, body = BODIES["chat"]
    async with pool_taken(rival_client, engine, rival.tenant):
        async with http.stream("POST", path, json=body) as response:
            async for line in response.aiter_lines():
                if line == ": keep-alive":
                    break

        async def is_over() -> bool:
            return all(row.settled for row in await read(generations)(acme.tenant))

        await until(is_over)
        assert await blocks_in_use(engine, rival.tenant) > 0
    assert await read(holds)(acme.tenant) == 0
    assert [row.output_tokens for row in await read(records)(acme.tenant)] in ([], [0])


async def test_a_repeated_stream_is_that_of_the_events_alone(
    http: Any, rival_client: AsyncOpenAI, engine: str, rival: Any, comments: list[bytes]
) -> None:
    path, body = BODIES["chat"]
    key = {"idempotency-key": "queued"}
    async with pool_taken(rival_client, engine, rival.tenant, comments):
        first = await http.post(path, json=body, headers=key)
    again = await http.post(path, json=body, headers=key)
    assert COMMENT in first.content
    assert again.content == first.content.replace(COMMENT, b"")


class Network:
    """What reaches it; ``slow``: nothing does, until it is over."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.open.wait()
        if message["type"] == "http.response.body":
            self.sent.append(message.get("body", b""))


START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


def body(data: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_nothing_stands_within_an_event_that_comes_in_pieces() -> None:
    network = Network()
    kept = KeepAlive(network.send, 0.01)
    await kept.send(START)
    await kept.send(body(b"data: a"))
    await asyncio.sleep(0.05)
    await kept.send(body(b"b\n\n", more=False))
    await asyncio.sleep(0.05)
    assert network.sent == [b"data: a", b"b\n\n"]


async def test_a_slow_reader_gets_no_comment_behind_the_end() -> None:
    network = Network()
    kept = KeepAlive(network.send, 0.01)
    await kept.send(START)
    network.open.clear()
    await asyncio.sleep(0.05)
    ending = asyncio.create_task(kept.send(body(b"data: [DONE]\n\n", more=False)))
    await asyncio.sleep(0)
    network.open.set()
    await ending
    await asyncio.sleep(0.05)
    assert network.sent == [b"data: [DONE]\n\n"]


async def test_what_is_no_stream_of_events_is_left_alone() -> None:
    network = Network()
    kept = KeepAlive(network.send, 0.01)
    await kept.send({**START, "headers": [(b"content-type", b"application/json")]})
    await asyncio.sleep(0.05)
    await kept.send(body(b"{}", more=False))
    assert network.sent == [b"{}"]
