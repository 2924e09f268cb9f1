"""Bodies made of millions of parts: refused before they are parsed, and others wait for none of it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from typing import Any

import httpx
import pytest
from asking import chat, text

from pagoda.api import operations, strict_json
from pagoda.api.body_bounds import MAX_NAMES, MAX_NAMES_OF_ONE, MAX_VALUES, SMALL_BYTES, check_parts
from pagoda.api.errors import ApiError

CALL = {"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}}
PART = {"type": "text", "text": "x"}


def body(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def hostile() -> dict[str, tuple[str, bytes]]:
    """Address and body, each of some MiB."""
    many = {f"x{n}": 0 for n in range(1_000_000)}
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"a": [[]] * 3_000_000}}}
    calls = [{"role": "assistant", "tool_calls": [CALL] * 100} for _ in range(1500)]
    parts = [{"role": "user", "content": [PART] * 1000} for _ in range(500)]
    return {
        "unknown fields": ("/chat/completions", body(chat() | many)),
        "unknown fields of embeddings": ("/embeddings", body({"model": "echo", "input": "x"} | many)),
        "lists in a schema": ("/chat/completions", body(chat(response_format=schema))),
        "biases": ("/chat/completions", body(chat(logit_bias=many))),
        "called functions": ("/chat/completions", body(chat(messages=calls))),
        "parts of messages": ("/chat/completions", body(chat(messages=parts))),
        "token ids": ("/completions", body(text([1] * 8_000_000))),
        "brackets": ("/chat/completions", b'{"model": ' + b"[" * 10_000_000),
    }


@pytest.fixture(scope="module")
def bodies() -> dict[str, tuple[str, bytes]]:
    return hostile()


@pytest.mark.parametrize("what", ["unknown fields", "lists in a schema", "biases"])
async def test_a_body_of_millions_of_parts_holds_up_nobody(
    http: Any, site: str, rival_key: str, bodies: dict[str, tuple[str, bytes]], what: str
) -> None:
    """Whatever else the machine may have had to do meanwhile: the least of three tries counts."""
    path, data = bodies[what]
    assert len(data) > 8 << 20

    async def rival_asks(over: asyncio.Event) -> float:
        longest = 0.0
        headers = {"authorization": f"Bearer {rival_key}"}
        async with httpx.AsyncClient(base_url=f"{site}/v1", headers=headers, timeout=30, trust_env=False) as theirs:
            while not over.is_set():
                begun = time.perf_counter()
                assert (await theirs.get("/models")).status_code == 200
                longest = max(longest, time.perf_counter() - begun)
        return longest

    waits: list[float] = []
    while not waits or (min(waits) >= 0.5 and len(waits) < 3):
        over = asyncio.Event()
        asking = asyncio.create_task(rival_asks(over))
        try:
            answer = await http.post(path, content=data, headers={"content-type": "application/json"})
        finally:
            over.set()
            waits.append(await asking)
        assert answer.status_code == 413, answer.text
        assert answer.json()["error"]["code"] == "request_too_large"
    assert min(waits) < 0.5


async def test_every_kind_of_hostile_body_is_refused_in_half_a_second(
    bodies: dict[str, tuple[str, bytes]],
) -> None:
    for what, (_, data) in bodies.items():
        begun = time.thread_time()
        with pytest.raises(ApiError) as refused:
            strict_json.parse(data)
        assert time.thread_time() - begun < 0.5, what
        assert refused.value.body.error.code == "request_too_large", what


def largest() -> dict[str, Any]:
    """Requests with as many parts as any that has an answer."""
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    turns.append({"role": "tool", "tool_call_id": "c", "content": [PART]})
    marks = '{"a": [1, 2], "b": "\\"}", "c": "\\\\"}: '
    return {
        "10 000 messages": chat(messages=turns * 3333),
        "16 long prompts": text([[49151] * 131_000] * 16),
        "a schema of 64 KiB": chat(tools=[{"properties": {f"{n:x}": 1 for n in range(4000)}, "enum": [0] * 20_000}]),
        "a text full of marks": chat(marks * 300_000),
        "texts full of marks": text([marks * 20_000] * 16),
    }


@pytest.mark.parametrize("what", largest())
def test_nothing_that_could_be_answered_is_refused(what: str) -> None:
    request = largest()[what]
    data = body(request)
    assert len(data) > SMALL_BYTES
    assert strict_json.parse(data) == request


def refusal(data: bytes) -> str | None:
    try:
        check_parts(data)
    except ApiError as error:
        return error.body.error.message
    return None


@pytest.mark.parametrize("opening", ["", "\\", '\\"', "\\\\", ':,{["' * 10, "x" * ((1 << 16) - 20)])
def test_parts_are_counted_exactly_whatever_the_texts_are(opening: str) -> None:
    def named(count: int) -> bytes:
        lists = [{f"n{n}": ":,{" for n in range(min(1000, count - start))} for start in range(0, count, 1000)]
        return body([opening, *lists])

    assert refusal(named(MAX_NAMES)) is None
    assert f"{MAX_NAMES} names" in str(refusal(named(MAX_NAMES + 1)))
    assert refusal(body([opening, *["[,"] * MAX_VALUES])) is None
    assert f"{MAX_VALUES} values" in str(refusal(body([opening, *["[,"] * (MAX_VALUES + 1)])))
    assert f"{MAX_NAMES} objects and lists" in str(refusal(body([opening, *[[]] * MAX_NAMES])))


async def test_an_object_has_so_many_fields_at_most(http: Any) -> None:
    fields = {f"x{n}": 0 for n in range(MAX_NAMES_OF_ONE + 1)}
    answer = await http.post("/chat/completions", json=chat(logit_bias=fields))
    assert answer.status_code == 413
    assert str(MAX_NAMES_OF_ONE) in answer.json()["error"]["message"]
    fields.popitem()
    answer = await http.post("/chat/completions", json=chat(logit_bias=fields))
    assert answer.json()["error"]["param"] == "logit_bias"


async def test_large_bodies_are_read_off_the_loop(http: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def parse(data: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return json.loads(data)

    monkeypatch.setattr(strict_json, "parse", parse)
    for length in (10, SMALL_BYTES + 1):
        answer = await http.post("/tokenize", json={"model": "echo", "prompt": "x" * length})
        assert answer.json()["count"] == length
    assert threads[0] == threading.main_thread().name
    assert threads[1].startswith("bodies")


async def test_a_tenants_large_bodies_are_read_one_at_a_time_beside_anothers() -> None:
    ours, theirs = uuid.uuid4(), uuid.uuid4()
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert go_on.wait(10)

    waiting = asyncio.create_task(operations.apart(ours, first))
    assert await asyncio.to_thread(begun.wait, 10)
    second = asyncio.create_task(operations.apart(ours, lambda: "second"))
    assert await operations.apart(theirs, lambda: "rival") == "rival"
    assert not second.done()
    go_on.set()
    assert await second == "second"
    await waiting
