"""Every error code: what is wrong is said, nothing changes, and the socket stays open."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from channels.db import database_sync_to_async
from chat_sockets import Socket, client_id
from engine_at_hand import long_question

from pagoda.chat import handlers, limits, requests, streams
from pagoda.chat.models import Conversation, Message, Submission
from pagoda.engines import connections
from pagoda.generations.models import Generation

UNKNOWN = str(uuid.uuid4())

slowly = pytest.mark.parametrize("step_ms", [150.0], ids=["slowly"])
"""A long answer takes 25 seconds and more: it is still being written when something else happens."""


@pytest.fixture
def step_ms() -> float:
    return 2


async def rows() -> list[int]:
    def count() -> list[int]:
        return [kind.across_tenants.count() for kind in (Conversation, Message, Submission, Generation)]

    return await database_sync_to_async(count)()


INVALID: list[tuple[str, dict[str, Any], str | None]] = [
    ("message.send", {}, "type"),
    ("conversation.open", {}, "conversation_id"),
    ("conversation.open", {"conversation_id": "5"}, "conversation_id"),
    ("conversation.list", {"limit": 101}, "limit"),
    ("conversation.list", {"limit": 0}, "limit"),
    ("conversation.list", {"before": "%%"}, "before"),
    ("conversation.list", {"before": "YWJj"}, "before"),
    ("conversation.rename", {"conversation_id": UNKNOWN}, "title"),
    ("message.create", {"content": "Hi"}, "client_id"),
    ("message.create", {"client_id": "short", "content": "Hi"}, "client_id"),
    ("message.create", {"client_id": "x" * 65, "content": "Hi"}, "client_id"),
    ("message.create", {"client_id": "12345678"}, "content"),
    ("message.create", {"client_id": "12345678", "content": ""}, "content"),
    ("message.create", {"client_id": "12345678", "content": " \n "}, "content"),
    ("message.create", {"client_id": "12345678", "content": "NUL \x00"}, "content"),
    ("message.create", {"client_id": "12345678", "content": ["Hi"]}, "content"),
    ("message.create", {"client_id": "12345678", "content": "Hi", "parent_id": UNKNOWN}, "parent_id"),
    (
        "message.create",
        {"client_id": "12345678", "content": "Hi", "sampling": {"temperature": 3}},
        "sampling.temperature",
    ),
    ("message.create", {"client_id": "12345678", "content": "Hi", "sampling": {"top_p": -0.01}}, "sampling.top_p"),
    (
        "message.create",
        {"client_id": "12345678", "content": "Hi", "sampling": {"max_tokens": 0}},
        "sampling.max_tokens",
    ),
    (
        "message.create",
        {"client_id": "12345678", "content": "Hi", "sampling": {"max_tokens": 4097}},
        "sampling.max_tokens",
    ),
    ("message.create", {"client_id": "12345678", "content": "Hi", "sampling": {"stop": ["a"] * 5}}, "sampling.stop"),
    ("message.create", {"client_id": "12345678", "content": "Hi", "sampling": {"seed": -1}}, "sampling.seed"),
    ("generation.attach", {"generation_id": UNKNOWN, "after_seq": -1}, "after_seq"),
]


async def test_invalid_names_the_field_that_is_missing_or_wrong(socket: Socket) -> None:
    before = await rows()
    for kind, fields, field in INVALID:
        error = await socket.refusal(kind, **fields)
        assert (error["code"], error["field"]) == ("invalid", field), (kind, fields, error)
        assert error["message"]
        assert error["client_id"] == fields.get("client_id")
    assert await rows() == before


async def test_frames_that_are_no_objects_are_invalid(socket: Socket) -> None:
    for frame in (" ", "no json", "5", "[]", "null", '{"type": "ping"', '{"type":"ping","x":"\\ud800"}', "[" * 100_000):
        await socket.send_text(frame)
        assert (await socket.expect("error"))["code"] == "invalid"
    await socket.send_bytes(b'{"type": "ping"}')
    assert (await socket.expect("error"))["code"] == "invalid"
    assert await socket.request("ping", "pong")


async def test_too_large_is_a_frame_or_a_message_beyond_the_limit(socket: Socket) -> None:
    await socket.send_text(json.dumps({"type": "ping", "padding": "x" * 262_144}))
    assert (await socket.expect("error"))["code"] == "too_large"
    await socket.send_text(json.dumps({"type": "ping", "padding": "한" * 90_000}, ensure_ascii=False))
    assert (await socket.expect("error"))["code"] == "too_large"
    error = await socket.refusal("message.create", client_id="12345678", content="x" * 100_001)
    assert (error["code"], error["field"]) == ("too_large", "content")
    assert await rows() == [0, 0, 0, 0]


NOT_FOUND: list[tuple[str, dict[str, Any], str]] = [
    ("conversation.open", {"conversation_id": UNKNOWN}, "conversation_id"),
    ("conversation.rename", {"conversation_id": UNKNOWN, "title": "Mine"}, "conversation_id"),
    ("conversation.delete", {"conversation_id": UNKNOWN}, "conversation_id"),
    ("message.create", {"content": "Hi", "conversation_id": UNKNOWN}, "conversation_id"),
    ("message.regenerate", {"message_id": UNKNOWN}, "message_id"),
    ("message.continue", {"message_id": UNKNOWN}, "message_id"),
    ("generation.attach", {"generation_id": UNKNOWN}, "generation_id"),
    ("generation.stop", {"generation_id": UNKNOWN}, "generation_id"),
]


async def test_not_found_is_what_does_not_exist(socket: Socket) -> None:
    for kind, fields, field in NOT_FOUND:
        error = await socket.refusal(kind, client_id=client_id(), **fields)
        assert (error["code"], error["field"]) == ("not_found", field), kind
    created = await socket.ask("Hello")
    await socket.read_answer(created["generation_id"])
    error = await socket.refusal(
        "message.create",
        client_id=client_id(),
        content="Hi",
        conversation_id=created["conversation"]["id"],
        parent_id=UNKNOWN,
    )
    assert (error["code"], error["field"]) == ("not_found", "parent_id")


async def test_a_message_of_another_conversation_is_no_parent(socket: Socket) -> None:
    first, second = await socket.ask("Hello"), await socket.ask("Hello again")
    for each in (first, second):
        await socket.read_answer(each["generation_id"])
    fields = {"client_id": client_id(), "content": "Hi", "conversation_id": first["conversation"]["id"]}
    error = await socket.refusal("message.create", parent_id=second["assistant_message"]["id"], **fields)
    assert (error["code"], error["field"]) == ("not_found", "parent_id")
    error = await socket.refusal("message.create", parent_id=first["user_message"]["id"], **fields)
    assert (error["code"], error["field"]) == ("invalid", "parent_id")


@slowly
async def test_conflict_is_what_cannot_be_done_while_the_answer_is_written(socket: Socket) -> None:
    created = await socket.ask(long_question())
    message_id = created["assistant_message"]["id"]
    before = await rows()
    requests: list[tuple[str, dict[str, Any]]] = [
        ("message.regenerate", {"message_id": message_id}),
        ("message.continue", {"message_id": message_id}),
        (
            "message.create",
            {"content": "Hi", "parent_id": message_id, "conversation_id": created["conversation"]["id"]},
        ),
    ]
    for kind, fields in requests:
        error = await socket.refusal(kind, client_id=client_id(), **fields)
        assert error["code"] == "conflict", kind
    assert await rows() == before


async def test_a_question_is_no_answer_to_regenerate_or_continue(socket: Socket) -> None:
    created = await socket.ask("Hello")
    for kind in ("message.regenerate", "message.continue"):
        error = await socket.refusal(kind, client_id=client_id(), message_id=created["user_message"]["id"])
        assert (error["code"], error["field"]) == ("invalid", "message_id")


@slowly
async def test_rate_limited_beyond_a_number_of_answers_at_once(
    socket: Socket, rival_socket: Socket, monkeypatch: pytest.MonkeyPatch, hurry: Callable[[], None]
) -> None:
    monkeypatch.setattr(limits, "ANSWERS_AT_ONCE", 2)
    created = [await socket.ask(long_question()) for _ in range(2)]
    error = await socket.refusal("message.create", client_id=client_id(), content="Hi")
    assert error["code"] == "rate_limited"
    assert error["retry_after_s"] > 0
    assert await rival_socket.ask("Hello")
    hurry()
    await socket.read_answer(created[0]["generation_id"])
    assert await socket.ask("Hi")


async def test_rate_limited_beyond_the_requests_a_key_has_per_minute(web: str, make_key: Any, acme: Any) -> None:
    _, text = await make_key(acme, requests_per_minute=2)
    socket = Socket(origin=None)
    await socket.hello(api_key=text)
    begun = time.monotonic()
    for _ in range(2):
        created = await socket.ask("Hello")
        await socket.read_answer(created["generation_id"])
    error = await socket.refusal("message.create", client_id=client_id(), content="Hi")
    assert error["code"] == "rate_limited"
    # When the first of them is a minute old.
    assert 59.9 - (time.monotonic() - begun) < error["retry_after_s"] <= 60
    await socket.close()


@slowly
async def test_rate_limited_beyond_a_number_of_generations_followed(
    socket: Socket, monkeypatch: pytest.MonkeyPatch, hurry: Callable[[], None]
) -> None:
    monkeypatch.setattr(streams, "STREAMS_PER_SOCKET", 1)
    created = await socket.ask(long_question())
    assert (await socket.refusal("message.create", client_id=client_id(), content="Hi"))["code"] == "rate_limited"
    await socket.send("generation.attach", generation_id=created["generation_id"])
    hurry()
    await socket.read_answer(created["generation_id"])
    assert await socket.ask("Hi")


async def test_unavailable_while_no_engine_is_there(socket: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "default_model", lambda: None)
    error = await socket.refusal("message.create", client_id=client_id(), content="Hi")
    assert error["code"] == "unavailable"
    assert await rows() == [0, 0, 0, 0]


async def test_internal_is_our_own_fault_and_tells_nothing_of_it(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(handlers.Handlers, "_list", fail)
    error = await socket.refusal("conversation.list")
    assert error["code"] == "internal"
    assert "swordfish" not in json.dumps(error)
    assert await socket.request("ping", "pong")


async def test_unknown_fields_are_ignored(socket: Socket) -> None:
    assert await socket.request("ping", "pong", colour="green")


@pytest.fixture
def engine_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"max_waiting": 1, "max_running": 1} if "queue" in request.node.name else {}


async def test_what_the_engine_refuses_fails_with_its_reason(socket: Socket) -> None:
    created = await socket.ask("x" * 5000)
    answer = await socket.read_answer(created["generation_id"])
    assert answer.finished is not None
    assert answer.state == "failed"
    assert answer.finished["error"]["code"] == "context_length_exceeded"
    opened = await socket.request(
        "conversation.open", "conversation.opened", conversation_id=created["conversation"]["id"]
    )
    shown = opened["messages"][1]
    assert (shown["state"], shown["error"]["code"]) == ("failed", "context_length_exceeded")
    error = await socket.refusal("message.continue", client_id=client_id(), message_id=shown["id"])
    assert (error["code"], "failed" in error["message"]) == ("conflict", True)


@slowly
async def test_a_full_queue_fails_with_its_reason(socket: Socket, hurry: Callable[[], None]) -> None:
    created = [await socket.ask(long_question()) for _ in range(4)]
    hurry()
    answers = [await socket.read_answer(each["generation_id"]) for each in created]
    failed = [answer.finished["error"]["code"] for answer in answers if answer.finished and answer.state == "failed"]
    assert failed
    assert set(failed) == {"queue_full"}


TOLD = [
    ({"type": "SECRET"}, "There is no message of this type: the protocol's version 1 has those there are."),
    ({"content": "x"}, "A message needs a type: the protocol's version 1 has those there are."),
    ({"type": "conversation.list", "limit": 0}, "This must be a whole number, at least 1."),
    ({"type": "conversation.list", "limit": "SECRET"}, "This must be a whole number."),
    ({"type": "conversation.open"}, "This field is required: conversation_id."),
    ({"type": "conversation.open", "conversation_id": "SECRET"}, "This must be an id (a UUID)."),
    ({"type": "message.create", "client_id": "short"}, "This must be a string of at least 8 characters."),
    (
        {"type": "message.create", "client_id": "12345678", "content": ""},
        "This must be a string of at least 1 character.",
    ),
    ({"type": "message.create", "client_id": "12345678", "content": ["SECRET"]}, "This must be a string."),
    (
        {"type": "message.regenerate", "client_id": "12345678", "message_id": UNKNOWN, "sampling": {"stop": ["a"] * 5}},
        "This must be a list of at most 4 entries.",
    ),
    (
        {"type": "message.regenerate", "client_id": "12345678", "message_id": UNKNOWN, "sampling": {"top_p": 2}},
        "This must be a number, at most 1.0.",
    ),
    (
        {"type": "message.regenerate", "client_id": "12345678", "message_id": UNKNOWN, "sampling": 5},
        "This must be an object.",
    ),
]


@pytest.mark.parametrize(("message", "told"), TOLD, ids=[told for _, told in TOLD])
def test_what_is_wrong_with_a_field_is_said_in_words_and_not_repeated(message: dict[str, Any], told: str) -> None:
    with pytest.raises(requests.RequestRefused) as refused:
        requests.read_request(requests.read_frame(json.dumps(message)))
    assert refused.value.message == told


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ('{"x": NaN}', "neither NaN nor Infinity"),
        ('{"x": [-Infinity]}', "neither NaN nor Infinity"),
        ('{"x": "\\ud800"}', "half a surrogate pair"),
        ('{"x": "\\udc00 "}', "half a surrogate pair"),
        ('{"x": "\ud800"}', "half a surrogate pair"),
        ('{"x": "NaN"', "one JSON object"),
        ("[" * 100_000, "nested too deeply"),
    ],
    ids=range(7),
)
def test_a_frame_that_is_no_json_is_told_why(frame: str, told: str) -> None:
    with pytest.raises(requests.RequestRefused, match=told):
        requests.read_frame(frame)
