"""The protocol's AsyncAPI file and the server say the same: types, fields, limits and codes, both ways round."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest
import yaml
from chat_sockets import PATIENCE_S, Answer, Socket, client_id
from engine_at_hand import echo, long_question

from pagoda.chat import consumer, identity, requests, streams
from pagoda.chat.models import Message
from pagoda.generations.recording import EngineLost, as_json
from pagoda_inference.protocol import Error, FinishReason

ROOT = Path(__file__).parents[3]
CHAT = ROOT / "platform/pagoda/chat"
DOCUMENT: dict[str, Any] = yaml.safe_load((ROOT / "docs/websocket.asyncapi.yaml").read_text())
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
STRUCTS = {struct.__struct_config__.tag: struct for struct in (requests.Hello, *get_args(requests.Request))}
CHANNEL = "#/channels/chat/messages/"


def sent_by_the_server() -> set[str]:
    return set(MESSAGES) - set(STRUCTS)


def properties(schema: dict[str, Any]) -> dict[str, Any]:
    """Of an object's schema, each with what it refers to in its place."""
    found: dict[str, Any] = schema["properties"]
    return {name: resolved(each) for name, each in found.items()}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    return schema if reference is None else SCHEMAS[reference.removeprefix("#/components/schemas/")] | schema


def limits(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema allows, without names, defaults and null: as msgspec and the file write it alike."""
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            return limits(choice)
    told = {name: value for name, value in schema.items() if name in LIMITS}
    if isinstance(told.get("type"), list):
        (told["type"],) = (each for each in told["type"] if each != "null")
    if "items" in schema:
        told["items"] = limits(schema["items"])
    return told


LIMITS = {
    *("type", "format", "minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "maxItems"),
}


# --- the file itself --------------------------------------------------------------------------------------------------


def references(part: Any) -> list[str]:
    if isinstance(part, list):
        return [each for item in part for each in references(item)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return own + [each for item in part.values() for each in references(item)]


def test_every_reference_leads_somewhere() -> None:
    assert DOCUMENT["asyncapi"].startswith("3.")
    for reference in set(references(DOCUMENT)):
        place: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def test_every_message_is_of_the_channel_and_sent_by_the_side_that_sends_it() -> None:
    channel = DOCUMENT["channels"]["chat"]
    assert list(channel["messages"]) == list(MESSAGES)
    received, sent = set(), set()
    for operation in DOCUMENT["operations"].values():
        named = {each["$ref"].removeprefix(CHANNEL) for each in operation["messages"]}
        (received if operation["action"] == "receive" else sent).update(named)
        sent |= {each["$ref"].removeprefix(CHANNEL) for each in operation.get("reply", {}).get("messages", ())}
    assert received == set(STRUCTS)
    assert sent == sent_by_the_server()


def test_the_type_of_each_message_is_its_name() -> None:
    for name, message in MESSAGES.items():
        assert message["payload"]["properties"]["type"] == {"const": name}
        assert "type" in message["payload"]["required"]


def test_a_key_is_a_field_of_the_first_message_and_nothing_of_the_address() -> None:
    channel = DOCUMENT["channels"]["chat"]
    assert channel["address"] == "/ws/v1"
    assert not {"parameters", "bindings"} & set(channel)
    assert "securitySchemes" not in DOCUMENT["components"]
    assert [name for name, message in MESSAGES.items() if "api_key" in message["payload"]["properties"]] == ["hello"]


# --- what clients send ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRUCTS)
def test_a_request_has_the_fields_that_the_server_reads(name: str) -> None:
    struct = STRUCTS[name]
    (_, components) = msgspec.json.schema_components([struct], ref_template="#/{name}")
    read = components[struct.__name__]
    told = MESSAGES[name]["payload"]
    assert set(told["properties"]) == set(read["properties"]) | {"request_id"}
    assert sorted(told["required"]) == sorted(read["required"])
    for field, schema in properties(told).items():
        if field in ("type", "request_id"):
            continue
        expected = components[schema_name(read["properties"][field])] if "$ref" in read["properties"][field] else None
        if expected is not None:
            assert {each: limits(part) for each, part in properties(schema).items()} == {
                each: limits(part) for each, part in expected["properties"].items()
            }
            continue
        allowed = limits(read["properties"][field])
        if field == "content":
            allowed["maxLength"] = requests.CONTENT_CHARACTERS
        assert limits(schema) == allowed, field
        assert schema.get("default") == read["properties"][field].get("default"), field
        # Null counts as absent.
        nullable = isinstance(schema["type"], list) and "null" in schema["type"]
        assert nullable == (field not in read["required"]), field


def schema_name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).removeprefix("#/")


# --- codes ------------------------------------------------------------------------------------------------------------


def test_codes_of_errors_are_those_of_the_code() -> None:
    used = set()
    for path in CHAT.glob("*.py"):
        used |= set(re.findall(r'RequestRefused\(\s*"([a-z_]+)"', path.read_text()))
        used |= set(re.findall(r'code, message = "([a-z_]+)"', path.read_text()))
    assert used == set(properties(MESSAGES["error"]["payload"])["code"]["enum"])


def test_close_codes_are_those_of_the_code_and_of_the_document() -> None:
    told = set(DOCUMENT["channels"]["chat"]["x-close-codes"])
    own = {consumer.BAD_HELLO, consumer.NO_HELLO, identity.NOT_SIGNED_IN, identity.NOT_A_MEMBER}
    closed_with = {int(code) for code in re.findall(r"close_with\((\d{4})\)", (CHAT / "consumer.py").read_text())}
    # 1012 is the web server's own, when it stops.
    assert told == own | closed_with | {1012}
    documented = re.findall(r"^\| (\d{4}) \|", (ROOT / "docs/websocket.md").read_text(), re.M)
    assert told == {int(code) for code in documented}


def test_words_of_messages_are_those_of_the_code() -> None:
    assert set(SCHEMAS["Message"]["properties"]["state"]["enum"]) == set(Message.State.values)
    assert set(SCHEMAS["Message"]["properties"]["role"]["enum"]) == set(Message.Role.values)
    assert set(SCHEMAS["FinishReason"]["enum"]) == {*get_args(FinishReason), None}


@pytest.mark.parametrize("error", [as_json(Error("queue_full", "Full.", {"waiting": 5})), EngineLost("gone").error])
def test_an_engines_error_is_of_the_described_shape(error: dict[str, Any]) -> None:
    schema = SCHEMAS["GenerationError"]
    jsonschema_rs.validator_for(schema).validate(error)
    assert set(error) == set(schema["properties"])


# --- what the server sends --------------------------------------------------------------------------------------------


def test_the_server_sends_the_types_described() -> None:
    """Every literal object with a type in the chat's code; those of events are made from their kind."""
    found = set()
    for path in CHAT.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                named = {key.value: value for key, value in zip(node.keys, node.values, strict=True)
                         if isinstance(key, ast.Constant)}  # fmt: skip
                if isinstance(kind := named.get("type"), ast.Constant):
                    found.add(kind.value)
    stream = (ROOT / "platform/pagoda/generations/stream.py").read_text()
    found |= {f"generation.{kind}" for kind in re.findall(r'_event\(\s*"(\w+)"', stream)}
    assert found - {"hint"} == sent_by_the_server()


class Recorded(Socket):
    """Keeps every message that it receives."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.received: list[dict[str, Any]] = []

    async def receive(self, within_s: float = PATIENCE_S) -> dict[str, Any]:
        message = await super().receive(within_s)
        self.received.append(message)
        return message


def strict(part: Any) -> Any:
    """The file, with nothing allowed that is not described."""
    if isinstance(part, list):
        return [strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    closed = {name: strict(each) for name, each in part.items()}
    if "properties" in part and "required" in part:
        closed["additionalProperties"] = False
    return closed


def fields_of(message: Any, prefix: str) -> set[str]:
    """Paths of all fields of a message, whatever the places in lists."""
    if isinstance(message, list):
        return {path for each in message for path in fields_of(each, prefix)}
    if not isinstance(message, dict):
        return {prefix}
    return {prefix}.union(*(fields_of(each, f"{prefix}.{name}") for name, each in message.items()))


def described_fields(schema: dict[str, Any], prefix: str) -> set[str]:
    schema = resolved(schema)
    found = {prefix}
    for part in schema.get("oneOf", ()):
        found |= described_fields(part, prefix)
    if "items" in schema:
        found |= described_fields(schema["items"], prefix)
    for name, part in schema.get("properties", {}).items():
        found |= described_fields(part, f"{prefix}.{name}")
    return found


class TestConversation:
    """One in which everything happens that the server has a message for."""

    @pytest.fixture
    def step_ms(self) -> float:
        return 40

    async def test_every_message_sent_is_described_and_every_field_described_is_sent(
        self, web: str, make_key: Any, acme: Any, monkeypatch: pytest.MonkeyPatch, hurry: Callable[[], None]
    ) -> None:
        _, key = await make_key(acme)
        socket, other = Recorded(), Recorded()
        for each in (socket, other):
            await each.hello(api_key=key, request_id="first")
        await self.talk(socket, other, monkeypatch, hurry)
        received = socket.received + other.received
        for each in (socket, other):
            await each.close()
        for message in received:
            schema = strict({"components": DOCUMENT["components"]}) | strict(MESSAGES[message["type"]]["payload"])
            jsonschema_rs.validator_for(schema, validate_formats=True).validate(message)
        sent = set().union(*(fields_of(message, message["type"]) for message in received))
        described = set().union(*(described_fields(MESSAGES[name]["payload"], name) for name in sent_by_the_server()))
        assert sent <= described
        # What is told of a failure has a test of its own, and a question has neither usage nor generation.
        unusual = (".error.", "user_message.usage.", "user_message.generation.")
        assert {path for path in described - sent if not any(each in path for each in unusual)} == set()

    async def talk(
        self, socket: Recorded, other: Recorded, monkeypatch: pytest.MonkeyPatch, hurry: Callable[[], None]
    ) -> None:
        await socket.request("ping", "pong")
        question = long_question()
        asked = client_id()
        created = await socket.ask(question, client_id=asked)
        conversation = created["conversation"]["id"]
        await other.expect("conversation.changed")
        opened = await other.request("conversation.open", "conversation.opened", conversation_id=conversation)
        shown = opened["messages"][-1]
        assert shown["state"] == "streaming"
        hurry()
        first = await socket.read_answer(created["generation_id"])
        assert first.text == echo(question)[1]
        await other.read_answer(created["generation_id"], Answer(text=shown["content"], seq=shown["generation"]["seq"]))
        assert (await socket.ask(question, client_id=asked))["repeated"]
        answer = created["assistant_message"]["id"]
        again = await socket.request(
            "message.regenerate", "message.created", message_id=answer, client_id=client_id(),
            sampling={"max_tokens": 3},
        )  # fmt: skip
        assert again["user_message"] is None
        await socket.read_answer(again["generation_id"])
        await socket.send("generation.attach", generation_id=again["generation_id"], after_seq=10**6)
        await socket.expect("generation.snapshot")
        long = await socket.ask(question, sampling={"max_tokens": 1000, "temperature": 2})
        await socket.request("generation.stop", "generation.stopping", generation_id=long["generation_id"])
        await socket.read_answer(long["generation_id"])
        await socket.request("conversation.rename", "conversation.changed", conversation_id=conversation, title="Other")
        await socket.ask("Another conversation")
        await socket.request("conversation.open", "conversation.opened", conversation_id=conversation)
        page = await socket.request("conversation.list", "conversation.page", limit=1)
        assert page["next"]
        await socket.refusal("message.continue", message_id=answer, client_id=client_id())
        await socket.refusal("conversation.open", conversation_id="no id")
        monkeypatch.setattr(streams, "STREAMS_PER_SOCKET", 0)
        refused = await socket.refusal("generation.attach", generation_id=created["generation_id"])
        assert refused["retry_after_s"] > 0
        await socket.request("conversation.delete", "conversation.deleted", conversation_id=conversation)
        await other.expect("conversation.deleted")
