"""What is wrong with a request is told by the code and the words that fit: missing, unknown, wrong, or not offered."""

from __future__ import annotations

from typing import Any

import pytest
from asking import chat, text

SECRET = "s3cr3t-in-the-body"
CHAT, COMPLETIONS, RESPONSES = "/chat/completions", "/completions", "/responses"


def saying(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return chat(messages=[{"role": role, "content": list(parts)}])


def response(**fields: Any) -> dict[str, Any]:
    return {"model": "echo", "input": "x"} | fields


IMAGE = {"type": "image_url", "image_url": {"url": SECRET}}
SOUND = {"type": "input_audio", "input_audio": {"data": SECRET, "format": "wav"}}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": SECRET}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}

NOT_OFFERED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an image": (CHAT, saying(IMAGE), "messages[0].content[0].type"),
    "an image behind a text": (CHAT, saying({"type": "text", "text": "x"}, IMAGE), "messages[0].content[1].type"),
    "sound": (CHAT, saying(SOUND), "messages[0].content[0].type"),
    "an image of an assistant": (CHAT, saying(IMAGE, role="assistant"), "messages[0].content[0].type"),
    "a tool that is no function": (CHAT, chat(tools=[{"type": "custom", "custom": {"name": "x"}}]), "tools[0].type"),
    "one of several tools": (CHAT, chat(tool_choice=ALLOWED), "tool_choice.type"),
    "sound as an answer": (CHAT, chat(modalities=["text", "audio"]), "modalities[1]"),
    "another tier": (CHAT, chat(service_tier="flex"), "service_tier"),
    "the old role of functions": (CHAT, chat(messages=[{"role": "function", "content": "x"}]), "messages[0].role"),
    "a prediction": (CHAT, chat(prediction={"type": "content", "content": SECRET}), "prediction"),
    "tools of a response": (RESPONSES, response(tools=[{"type": "web_search"}]), "tools"),
    "a response in the background": (RESPONSES, response(background=True), "background"),
    "prompts that are cut": (RESPONSES, response(truncation="auto"), "truncation"),
    "a tool that a response must use": (RESPONSES, response(tool_choice="required"), "tool_choice"),
    "a call in a response": (RESPONSES, response(input=[CALLED]), "input[0].type"),
    "an image in a response": (
        RESPONSES,
        response(input=[{"role": "user", "content": [{"type": "input_image", "image_url": SECRET}]}]),
        "input[0].content[0].type",
    ),
}

NOBODY_TAKES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "a role that nobody has": (CHAT, chat(messages=[{"role": SECRET, "content": "x"}]), "messages[0].role", "'user'"),
    "a part that nobody has": (CHAT, saying({"type": SECRET}), "messages[0].content[0].type", "'text'"),
    "a format that nobody has": (CHAT, chat(response_format={"type": SECRET}), "response_format.type", "json_schema"),
    "an effort that nobody has": (CHAT, chat(reasoning_effort=SECRET), "reasoning_effort", "'minimal'"),
    "neither true nor never": (CHAT, chat(early_stopping=SECRET), "early_stopping", "a valid boolean or 'never'"),
    "a word that is no choice": (CHAT, chat(tool_choice=SECRET), "tool_choice", "or an object that names a function"),
    "content that is a number": (
        CHAT,
        chat(messages=[{"role": "user", "content": 5}]),
        "messages[0].content",
        "a string or a list",
    ),
    "a stop text that is a number": (CHAT, chat(stop=5), "stop", "a string or a list"),
    "a stop text that is null": (CHAT, chat(stop=[None]), "stop[0]", "string"),
    "a bias that is null": (CHAT, chat(logit_bias={"a": None}), "logit_bias.a", "number"),
    "a prompt that is a number": (COMPLETIONS, text(5), "prompt", "a string, token ids, or a list of either"),
    "an input that is a number": (RESPONSES, response(input=5), "input", "a string or a list"),
}

MISSING: dict[str, tuple[str, dict[str, Any], str]] = {
    "messages": (CHAT, chat(messages=None), "messages"),
    "the model": (CHAT, chat(model=None), "model"),
    "a role": (CHAT, chat(messages=[{"role": None, "content": "x"}]), "messages[0].role"),
    "a role left out": (CHAT, chat(messages=[{"content": "x"}]), "messages[0].role"),
    "content": (CHAT, chat(messages=[{"role": "user", "content": None}]), "messages[0].content"),
    "the text of a part": (CHAT, saying({"type": "text", "text": None}), "messages[0].content[0].text"),
    "a prompt": (COMPLETIONS, text(None), "prompt"),
    "an input": (RESPONSES, response(input=None), "input"),
}


async def refused(http: Any, path: str, body: dict[str, Any]) -> tuple[str, str, str]:
    answer = await http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert SECRET not in answer.text
    error = answer.json()["error"]
    return error["code"], error["param"], error["message"]


@pytest.mark.parametrize("what", NOT_OFFERED)
async def test_what_other_installations_offer_is_told_as_not_offered(http: Any, what: str) -> None:
    path, body, field = NOT_OFFERED[what]
    code, param, message = await refused(http, path, body)
    assert (code, param) == ("unsupported_value", field)
    assert "not offered" in message


@pytest.mark.parametrize("what", NOBODY_TAKES)
async def test_what_nobody_takes_is_invalid_and_told_what_it_should_be(http: Any, what: str) -> None:
    path, body, field, expected = NOBODY_TAKES[what]
    code, param, message = await refused(http, path, body)
    assert (code, param) == ("invalid_value", field)
    assert expected in message


@pytest.mark.parametrize("what", MISSING)
async def test_null_is_the_same_as_leaving_a_required_field_out(http: Any, what: str) -> None:
    path, body, field = MISSING[what]
    code, param, message = await refused(http, path, body)
    assert (code, param) == ("missing_field", field)
    assert "required" in message or "does not say" in message


async def test_an_unknown_field_is_told_where_the_fields_are(http: Any) -> None:
    code, param, message = await refused(http, CHAT, chat(max_token=5))
    assert (code, param) == ("unknown_field", "max_token")
    assert "/v1/docs" in message


@pytest.mark.parametrize(("data", "told"), [(b"", "empty"), (b'{"n": ' + b"9" * 5000 + b"}", "too many digits")])
async def test_what_is_no_json_object_is_told_in_words_of_the_api(http: Any, data: bytes, told: str) -> None:
    answer = await http.post(CHAT, content=data, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_json", None)
    assert told in error["message"]
    assert "sys." not in error["message"]


@pytest.mark.parametrize("query", ["files?limit=0", "files?limit=x", "files?order=up", "batches?limit=x"])
async def test_a_wrong_parameter_of_a_list_is_named(http: Any, query: str) -> None:
    answer = await http.get(f"/{query}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (
        400,
        "invalid_value",
        query.partition("?")[2].partition("=")[0],
    )
