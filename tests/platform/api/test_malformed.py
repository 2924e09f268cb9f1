"""Whatever is sent, the answer is an error that says which field is wrong, and never what was in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import chat, text

from pagoda.api import application
from pagoda.api.errors import ERROR_CODES

SECRET = "s3cr3t-in-the-body"


def with_message(**message: Any) -> dict[str, Any]:
    return chat(messages=[message])


BAD_CHATS: dict[str, tuple[dict[str, Any], str | None]] = {
    "huge n": (chat(n=10**9), "n"),
    "n beyond 64 bits": (chat(n=10**30), "n"),
    "n of nothing": (chat(n=0), "n"),
    "n as a text": (chat(n="2"), "n"),
    "n as a truth": (chat(n=True), "n"),
    "n as a fraction": (chat(n=1.5), "n"),
    "too many stop texts": (chat(stop=["x"] * 5), "stop"),
    "a hundred thousand stop texts": (chat(stop=[f"{n}" for n in range(100_000)]), "stop"),
    "an empty stop text": (chat(stop=[""]), "stop[0]"),
    "a long stop text": (chat(stop="x" * 10_000), "stop"),
    "stop as a number": (chat(stop=5), "stop"),
    "a hot temperature": (chat(temperature=2.1), "temperature"),
    "a cold temperature": (chat(temperature=-0.1), "temperature"),
    "top_p above 1": (chat(top_p=1.1), "top_p"),
    "a seed of 70 bits": (chat(seed=2**70), "seed"),
    "no tokens": (chat(max_tokens=0), "max_tokens"),
    "tokens twice": (chat(max_tokens=5, max_completion_tokens=6), "max_tokens"),
    "no model": ({"messages": [{"role": "user", "content": "x"}]}, "model"),
    "a model that is a list": (chat(model=[SECRET]), "model"),
    "no messages": ({"model": "echo"}, "messages"),
    "empty messages": (chat(messages=[]), "messages"),
    "messages that are a text": (chat(messages=SECRET), "messages"),
    "a message that is a text": (chat(messages=[SECRET]), "messages[0]"),
    "a message without a role": (with_message(content="x"), "messages[0].role"),
    "an unknown role": (with_message(role=SECRET, content="x"), "messages[0].role"),
    "the old role of functions": (with_message(role="function", content="x", name="f"), "messages[0].role"),
    "a message without content": (with_message(role="user"), "messages[0].content"),
    "content that is a number": (with_message(role="user", content=5), "messages[0].content"),
    "an image": (
        with_message(role="user", content=[{"type": "image_url", "image_url": {"url": SECRET}}]),
        "messages[0].content[0].type",
    ),
    "a tool's result without its call": (with_message(role="tool", content="x"), "messages[0].tool_call_id"),
    "an unknown field": (chat(max_token=5), "max_token"),
    "an unknown field of a message": (with_message(role="user", content="x", sneaky=1), "messages[0].sneaky"),
    "too many metadata": (chat(metadata={str(n): "x" for n in range(17)}), "metadata"),
    "long metadata": (chat(metadata={"a": "x" * 513}), "metadata.a"),
    "top_logprobs alone": (chat(top_logprobs=3), "top_logprobs"),
    "too many top_logprobs": (chat(logprobs=True, top_logprobs=21), "top_logprobs"),
    "a bias of what is no token": (chat(logit_bias={SECRET: 5}), "logit_bias"),
    "a bias of a token that is not there": (chat(logit_bias={"999999": 5}), "logit_bias"),
    "too large a bias": (chat(logit_bias={"5": 101}), "logit_bias"),
    "more answers than beams": (chat(n=3, beam_width=2), "n"),
    "beams at a temperature": (chat(beam_width=2, temperature=1), "temperature"),
    "too many beams": (chat(beam_width=17), "beam_width"),
    "an unknown format": (chat(response_format={"type": SECRET}), "response_format.type"),
    "a format without a schema": (chat(response_format={"type": "json_schema"}), "response_format.json_schema"),
    "audio": (chat(audio={"voice": "x"}), "audio"),
    "sound as an answer": (chat(modalities=["audio"]), "modalities[0]"),
    "functions of old": (chat(functions=[]), "functions"),
    "a tool of another kind": (chat(tools=[{"type": "web_search"}]), "tools[0].type"),
    "a choice of a tool that is not there": (
        chat(tool_choice={"type": "function", "function": {"name": "f"}}),
        "tool_choice",
    ),
    "a choice without tools": (chat(tool_choice="required"), "tool_choice"),
    "a stream that is a text": (chat(stream="yes"), "stream"),
}


def check(answer: Any, status: int, param: str | None) -> None:
    error = answer.json()["error"]
    assert answer.status_code == status, answer.text
    assert set(error) == {"message", "type", "param", "code"}
    assert ERROR_CODES[error["code"]] == status
    assert error["param"] == param
    assert SECRET not in answer.text
    assert len(answer.content) < 1000
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("what", BAD_CHATS)
async def test_a_bad_field_is_named(http: Any, what: str) -> None:
    body, param = BAD_CHATS[what]
    check(await http.post("/chat/completions", json=body), 400, param)


BAD_SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown type": ({"type": SECRET}, "type"),
    "a type that is a number": ({"properties": {SECRET: {"type": 5}}}, "type"),
    "a reference to nothing": ({"$ref": f"#/{SECRET}"}, "$ref"),
    "a reference elsewhere": ({"$ref": f"http://{SECRET}.example/x"}, "not offered"),
    "one of several": ({"oneOf": [{"type": "string"}, {"const": SECRET}]}, "not offered"),
    "a pattern that is none": ({"properties": {"a": {"type": "string", "pattern": f"{SECRET}["}}}, "unclosed"),
    "a look ahead": ({"properties": {"a": {"type": "string", "pattern": f"(?={SECRET})"}}}, "look-ahead"),
    "a list that is a text": ({"allOf": SECRET}, "allOf"),
    "a bound that is a text": ({"properties": {"a": {"type": "number", "minimum": SECRET}}}, "minimum"),
    "an unknown format": ({"properties": {"a": {"type": "string", "format": SECRET}}}, "format"),
    "a keyword that is not offered": ({"not": {"const": SECRET}}, '"not"'),
    "nothing that fits": ({"required": [SECRET], "properties": {SECRET: False}, "type": "object"}, "no value"),
    "bounds the wrong way round": ({"type": "array", "minItems": 5, "maxItems": 3, "title": SECRET}, "minItems"),
}


IMPOSSIBLE = ("nothing that fits", "bounds the wrong way round")

PLACES = {
    "response_format": "response_format.json_schema.schema",
    "one tool": "tools[0].function.parameters",
    "the second of three tools": "tools[1].function.parameters",
    "a tool by its name": "tools[1].function.parameters",
    "text.format": "text.format.schema",
}


def tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "required": ["b"], "properties": {"b": schema}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("what", BAD_SCHEMAS)
async def test_a_bad_schema_is_told_by_its_fault_and_place_and_not_repeated(http: Any, what: str, where: str) -> None:
    schema, fault = BAD_SCHEMAS[what]
    tools = [tool("f", {"type": "integer"}), tool("g", schema), tool("h", {"type": "string"})]
    if where == "response_format":
        wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        answer = await http.post("/chat/completions", json=chat(max_tokens=5, response_format=wanted))
    elif where == "text.format":
        form = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
        answer = await http.post("/responses", json={"model": "echo", "input": "x", "text": form})
    elif where == "a tool by its name":
        named = {"type": "function", "function": {"name": "g"}}
        answer = await http.post("/chat/completions", json=chat(max_tokens=5, tools=tools, tool_choice=named))
    else:
        some = tools[1:2] if where == "one tool" else tools
        answer = await http.post("/chat/completions", json=chat(max_tokens=5, tools=some, tool_choice="required"))
    if what in IMPOSSIBLE and where == "the second of three tools":
        assert answer.status_code == 200  # it is never called, and the others can be
        return
    check(answer, 400, PLACES[where])
    message = answer.json()["error"]["message"]
    assert fault in message or (what in IMPOSSIBLE and "tool" in where and "no value" in message)
    assert "coerce" not in answer.text
    assert "lark" not in answer.text


async def test_a_schema_of_too_many_optional_properties_is_refused(http: Any, rival_client: Any) -> None:
    properties = {f"{SECRET}{number}": {"type": "string", "maxLength": 2} for number in range(900)}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    theirs = rival_client.chat.completions.create(**chat(max_tokens=5))
    answer = await http.post("/chat/completions", json=chat(max_tokens=5, response_format=wanted))
    check(answer, 400, "response_format.json_schema.schema")
    error = answer.json()["error"]
    assert error["code"] == "invalid_value"
    assert "an object has 900 properties that are not required, of 490 at most: require more" in error["message"]
    schema["properties"] = {f"p{number}": {"type": "string", "maxLength": 2} for number in range(900)}
    schema["required"] = list(schema["properties"])
    answer = await http.post("/chat/completions", json=chat(max_tokens=5, response_format=wanted))
    assert answer.status_code == 200, answer.text
    assert (await theirs).choices


BAD_TEXTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "no prompt": ({"model": "echo"}, "prompt"),
    "an empty prompt": (text(""), "prompt"),
    "an empty list": (text([]), "prompt"),
    "too many prompts": (text(["x"] * 17), "prompt"),
    "a prompt of both kinds": (text(["x", 5]), "prompt[1]"),
    "a token that is not there": (text([5, 260]), "prompt"),
    "a token below nothing": (text([-1]), "prompt[0]"),
    "fewer than n": (text(n=3, best_of=2), "best_of"),
    "the best of a stream": (text(n=1, best_of=2, stream=True), "best_of"),
    "a suffix": (text(suffix=SECRET), "suffix"),
    "too many logprobs": (text(logprobs=6), "logprobs"),
}


@pytest.mark.parametrize("what", BAD_TEXTS)
async def test_a_bad_field_of_a_completion_is_named(http: Any, what: str) -> None:
    body, param = BAD_TEXTS[what]
    check(await http.post("/completions", json=body), 400, param)


BAD_OTHERS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "no input": ("/responses", {"model": "echo"}, "input"),
    "an input that is a number": ("/responses", {"model": "echo", "input": 5}, "input"),
    "an item without a role": ("/responses", {"model": "echo", "input": [{"content": SECRET}]}, "input[0].role"),
    "an item of an unknown role": (
        "/responses",
        {"model": "echo", "input": [{"role": SECRET, "content": "x"}]},
        "input[0].role",
    ),
    "an unknown part": (
        "/responses",
        {"model": "echo", "input": [{"role": "user", "content": [{"type": SECRET, "text": "x"}]}]},
        "input[0].content[0].type",
    ),
    "a limit of nothing": ("/responses", {"model": "echo", "input": "x", "max_output_tokens": 0}, "max_output_tokens"),
    "an unknown format of a response": (
        "/responses",
        {"model": "echo", "input": "x", "text": {"format": {"type": SECRET}}},
        "text.format.type",
    ),
    "an unknown field of a response": ("/responses", {"model": "echo", "input": "x", "n": 2}, "n"),
    "a prompt of another kind": ("/tokenize", {"model": "echo", "prompt": [SECRET]}, "prompt"),
    "neither of two": ("/tokenize", {"model": "echo"}, "prompt"),
    "an unknown role to tokenise": (
        "/tokenize",
        {"model": "echo", "messages": [{"role": SECRET, "content": "x"}]},
        "messages[0].role",
    ),
    "a token that is a text": ("/detokenize", {"model": "echo", "tokens": [SECRET]}, "tokens[0]"),
    "no tokens": ("/detokenize", {"model": "echo", "tokens": []}, "tokens"),
    "a token beyond the vocabulary": ("/detokenize", {"model": "echo", "tokens": [100_000]}, "tokens"),
    "no input to embed": ("/embeddings", {"model": "echo"}, "input"),
    "no endpoint": ("/batches", {"input_file_id": "x", "completion_window": "24h"}, "endpoint"),
    "another window": (
        "/batches",
        {"input_file_id": "x", "endpoint": "/v1/completions", "completion_window": SECRET},
        "completion_window",
    ),
}


@pytest.mark.parametrize("what", BAD_OTHERS)
async def test_a_bad_field_of_any_other_call_is_named(http: Any, what: str) -> None:
    path, body, param = BAD_OTHERS[what]
    check(await http.post(path, json=body), 400, param)


BAD_BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"5",
    "not UTF-8": b'{"model": "\xff"}',
    "NaN": b'{"model": "echo", "messages": [], "temperature": NaN}',
    "Infinity": b'{"model": "echo", "messages": [], "temperature": Infinity}',
    "a number beyond a double": b'{"model": "echo", "messages": [], "temperature": 1e999}',
    "an integer of 5000 digits": b'{"n": ' + b"9" * 5000 + b"}",
    "the same name twice": b'{"model": "echo", "model": "' + SECRET.encode() + b'"}',
    "half a character": b'{"model": "echo", "messages": [{"role": "user", "content": "\\ud83d"}]}',
    "nesting": b'{"model": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "opening brackets": b'{"model": ' + b"[" * 40_000,
}


@pytest.mark.parametrize("what", BAD_BODIES)
async def test_a_body_that_is_no_json_object_is_refused(http: Any, what: str) -> None:
    answer = await http.post(
        "/chat/completions", content=BAD_BODIES[what], headers={"content-type": "application/json"}
    )
    check(answer, 400, None)


async def test_another_content_type_is_refused(http: Any) -> None:
    answer = await http.post("/chat/completions", data={"model": "echo"})
    check(answer, 415, None)


async def test_a_body_beyond_the_limit_is_not_read(http: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "MAX_BODY_BYTES", 1 << 20)
    body = json.dumps(chat("x" * (2 << 20))).encode()
    announced = await http.post("/chat/completions", content=body, headers={"content-type": "application/json"})
    check(announced, 413, None)

    async def pieces() -> Any:
        for start in range(0, len(body), 1 << 16):
            yield body[start : start + (1 << 16)]

    unannounced = await http.post("/chat/completions", content=pieces(), headers={"content-type": "application/json"})
    check(unannounced, 413, None)
    assert (await http.get("/models")).status_code == 200


@pytest.mark.parametrize("path", ["", "/", "/x", "/chat", "/chat/completions/x", "/models/", "/%00", "/ä"])
async def test_unknown_addresses_answer_in_the_same_format(http: Any, site: str, path: str) -> None:
    for slashes in ("/", "//", "///"):  # a base address that ends with one, and another
        answer = await http.get(f"{site}{slashes}v1{path}")
        check(answer, 404, None)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE"])
async def test_another_method_is_refused(http: Any, method: str) -> None:
    answer = await http.request(method, "/chat/completions")
    check(answer, 405, None)
    assert answer.headers["allow"] == "POST"
