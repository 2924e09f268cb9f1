"""What shapes an answer beyond temperature: log probabilities, biases, penalties, formats and functions."""

from __future__ import annotations

import json
import math
from typing import Any

import openai
import pytest
from asking import chat, text
from openai import AsyncOpenAI
from pydantic import BaseModel

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "maxLength": 20}},
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes", "no"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["answer", "count"],
    "additionalProperties": False,
}


async def test_logprobs_are_told_with_every_token(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(**chat(max_tokens=10), logprobs=True, top_logprobs=3)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 10
    assert max(len(token.top_logprobs) for token in logprobs.content) == 3
    for token in logprobs.content:
        assert token.logprob <= 0
        assert 1 <= len(token.top_logprobs) <= 3
        assert token.top_logprobs[0].logprob == max(top.logprob for top in token.top_logprobs)
        assert token.bytes is None or bytes(token.bytes).decode() == token.token


async def test_streamed_logprobs_are_those_of_the_whole_answer(client: AsyncOpenAI) -> None:
    fields = chat(max_tokens=20)
    whole = await client.chat.completions.create(**fields, logprobs=True)
    stream = await client.chat.completions.create(**fields, logprobs=True, stream=True)
    tokens = [
        (token.token, token.logprob)
        async for chunk in stream
        for choice in chunk.choices
        if choice.logprobs and choice.logprobs.content
        for token in choice.logprobs.content
    ]
    assert whole.choices[0].logprobs is not None
    assert tokens == [(token.token, token.logprob) for token in whole.choices[0].logprobs.content or ()]
    assert len(tokens) == 20


async def test_logprobs_of_a_completion(client: AsyncOpenAI) -> None:
    completion = await client.completions.create(**text(max_tokens=6), logprobs=2)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert logprobs.text_offset is not None
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 6
    assert logprobs.text_offset[0] == 0


async def test_logprobs_of_a_response(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model="echo", input="Hello", max_output_tokens=5, top_logprobs=2, include=["message.output_text.logprobs"]
    )
    content: Any = response.output[0]
    assert len(content.content[0].logprobs) == 5


async def test_the_best_of_several_is_the_most_probable(client: AsyncOpenAI) -> None:
    fields = text(temperature=1, seed=11, max_tokens=12)
    everything = await client.completions.create(**fields, n=6, logprobs=0)
    best = await client.completions.create(**fields, n=2, best_of=6)

    def mean(choice: Any) -> float:
        return math.fsum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    ranked = sorted(everything.choices, key=mean, reverse=True)
    assert [choice.text for choice in best.choices] == [choice.text for choice in ranked[:2]]
    assert best.usage is not None
    assert best.usage.completion_tokens == 6 * 12


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 2},
        {"frequency_penalty": 2},
        {"repetition_penalty": 5.0},
        {"logit_bias": {"65": -100}},
        {"top_k": 1},
        {"min_p": 1.0},
    ],
)
async def test_penalties_and_thresholds_are_taken(http: Any, fields: dict[str, Any]) -> None:
    answer = await http.post("/chat/completions", json=chat(temperature=1, seed=3, **fields))
    assert answer.status_code == 200, answer.text


async def test_a_json_object(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(
        **chat(temperature=1, seed=4, max_tokens=300), response_format={"type": "json_object"}
    )
    if completion.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(completion.choices[0].message.content or ""), dict)
    else:
        assert (completion.choices[0].message.content or "").lstrip().startswith("{")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_json_schema_is_followed(client: AsyncOpenAI, stream: bool) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    if stream:
        chunks = await client.chat.completions.create(**chat(max_tokens=300), response_format=wanted, stream=True)
        content = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
    else:
        completion = await client.chat.completions.create(**chat(max_tokens=300), response_format=wanted)
        content = completion.choices[0].message.content or ""
    answer = json.loads(content)
    assert answer["answer"] in ("yes", "no")
    assert 0 <= answer["count"] <= 99


async def test_the_clients_parse_helper_gives_an_object(client: AsyncOpenAI) -> None:
    class Answer(BaseModel):
        right: bool

    completion = await client.chat.completions.parse(**chat(max_tokens=300), response_format=Answer)
    assert isinstance(completion.choices[0].message.parsed, Answer)


async def test_a_schema_that_is_none_is_refused(client: AsyncOpenAI) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(**chat(), response_format=wanted)
    assert error.value.param == "response_format.json_schema.schema"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
async def test_a_function_is_called_with_arguments_that_fit(client: AsyncOpenAI, choice: Any) -> None:
    completion = await client.chat.completions.create(
        **chat(max_tokens=500), tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False
    )
    assert completion.choices[0].finish_reason == "tool_calls"
    (call,) = completion.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert list(json.loads(call.function.arguments)) == ["place"]
    assert completion.choices[0].message.content is None


async def test_a_streamed_call_is_the_same(client: AsyncOpenAI) -> None:
    fields = chat(max_tokens=500, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)
    whole = await client.chat.completions.create(**fields)
    chunks = [chunk async for chunk in await client.chat.completions.create(**fields, stream=True)]
    deltas = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert deltas[0].id
    assert deltas[0].function.name == "get_weather"
    assert all(delta.index == 0 for delta in deltas)
    (call,) = whole.choices[0].message.tool_calls
    assert "".join(delta.function.arguments or "" for delta in deltas) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_with_auto_the_answer_is_a_text_or_a_call(client: AsyncOpenAI) -> None:
    for seed in range(4):
        completion = await client.chat.completions.create(
            **chat(temperature=1, seed=seed, max_tokens=300), tools=[WEATHER]
        )
        message = completion.choices[0].message
        assert bool(message.content) != bool(message.tool_calls)


async def test_functions_and_a_format_exclude_each_other(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(**chat(), tools=[WEATHER], response_format={"type": "json_object"})  # type: ignore[list-item]
    assert error.value.param == "response_format"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("ending", [{"stop": ["place"]}, {"max_tokens": 24}, {"max_tokens": 6}])
async def test_an_answer_that_ends_within_a_call_is_no_call(client: AsyncOpenAI, ending: Any, stream: bool) -> None:
    asked = chat("What is the weather in Kyoto?") | ending
    fields: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required"}
    if stream:
        choices = [
            choice
            async for chunk in await client.chat.completions.create(**asked, **fields, stream=True)
            for choice in chunk.choices
        ]
        said = "".join(choice.delta.content or "" for choice in choices)
        finish = choices[-1].finish_reason
    else:
        choice = (await client.chat.completions.create(**asked, **fields)).choices[0]
        said, finish = choice.message.content or "", choice.finish_reason
    assert said == ""
    assert finish == ("stop" if "stop" in ending else "length")
