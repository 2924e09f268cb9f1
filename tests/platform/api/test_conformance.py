"""What docs/api.md promises of answers, field by field, through OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import QUESTION, chat, chunks_of, said, text
from engine_at_hand import echo, long_question
from openai import AsyncOpenAI

Json = dict[str, Any]


async def ask(client: AsyncOpenAI, stream: bool, **fields: Any) -> tuple[str, str]:
    """The text of the first answer and its finish reason, however it is had."""
    if stream:
        chunks = await chunks_of(await client.chat.completions.create(**chat(**fields), stream=True))
        finish = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason and c.index == 0]
        return said(chunks), finish[0]
    choice = (await client.chat.completions.create(**chat(**fields))).choices[0]
    return choice.message.content or "", choice.finish_reason


# --- n and best_of ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 64])
async def test_n_answers_come_in_the_order_of_their_indices(client: AsyncOpenAI, n: int) -> None:
    completion = await client.chat.completions.create(**chat(temperature=1, seed=1, max_tokens=4, n=n))
    assert [choice.index for choice in completion.choices] == list(range(n))
    assert completion.usage is not None
    assert completion.usage.completion_tokens <= 4 * n


async def test_n_greedy_answers_are_the_same(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(**chat(n=3))
    assert {choice.message.content for choice in completion.choices} == {echo(QUESTION)[1]}


async def test_several_answers_count_their_prompt_once(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(**chat(n=4, max_tokens=2))
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == echo(QUESTION)[0]


@pytest.mark.parametrize(("n", "best_of"), [(1, 4), (3, 3), (2, 64)])
async def test_best_of_writes_more_than_it_answers(client: AsyncOpenAI, n: int, best_of: int) -> None:
    completion = await client.completions.create(**text(temperature=1, seed=2, max_tokens=3, n=n, best_of=best_of))
    assert [choice.index for choice in completion.choices] == list(range(n))
    assert completion.usage is not None
    assert completion.usage.completion_tokens <= 3 * best_of
    assert completion.usage.completion_tokens > 3 * n or n == best_of


# --- stop -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("length", [1, 2, 7, 20])
async def test_a_stop_text_of_several_tokens_is_never_shown(client: AsyncOpenAI, stream: bool, length: int) -> None:
    """The echo model's tokens are bytes: every text longer than one lies across tokens."""
    question = long_question()
    whole = echo(question)[1]
    stop = whole[60 : 60 + length]
    assert await ask(client, stream, question=question, stop=stop) == (whole[: whole.index(stop)], "stop")


@pytest.mark.parametrize("stream", [True, False])
async def test_what_only_begins_like_a_stop_text_is_shown(client: AsyncOpenAI, stream: bool) -> None:
    question = long_question()
    whole = echo(question)[1]
    almost = [whole[at : at + 5] + "\u0001" for at in (3, 30, len(whole) - 5)]
    assert await ask(client, stream, question=question, stop=almost) == (whole, "stop")


@pytest.mark.parametrize("stream", [True, False])
async def test_the_first_of_several_stop_texts_ends_the_answer(client: AsyncOpenAI, stream: bool) -> None:
    question = long_question()
    whole = echo(question)[1]
    stops = [whole[90:96], whole[40:46], "never said", whole[70:76]]
    first = min(whole.index(stop) for stop in stops if stop in whole)
    assert (await ask(client, stream, question=question, stop=stops))[0] == whole[:first]


async def test_characters_of_several_bytes_may_be_stop_texts(client: AsyncOpenAI) -> None:
    whole = (await ask(client, False, max_tokens=400, extra_body={"ignore_eos": True}))[0]
    wide = next(character for character in whole if ord(character) > 0x7FF)
    cut, finish = await ask(client, True, max_tokens=400, stop=wide, extra_body={"ignore_eos": True})
    assert (cut, finish) == (whole[: whole.index(wide)], "stop")


async def test_a_completion_stops_too(client: AsyncOpenAI) -> None:
    whole = (await client.completions.create(**text(max_tokens=60))).choices[0].text
    stop = whole[20:24]
    completion = await client.completions.create(**text(max_tokens=60, stop=[stop]))
    assert completion.choices[0].text == whole[: whole.index(stop)]
    assert completion.choices[0].finish_reason == "stop"


# --- seed, biases, log probabilities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, -(2**63)])
async def test_a_seed_gives_the_same_whole_and_streamed(client: AsyncOpenAI, seed: int) -> None:
    fields = {"temperature": 1.2, "top_p": 0.9, "seed": seed, "max_tokens": 40}
    assert await ask(client, True, **fields) == await ask(client, False, **fields)


@pytest.mark.parametrize("top", [0, 1, 5, 20])
async def test_as_many_log_probabilities_as_asked_for(client: AsyncOpenAI, top: int) -> None:
    completion = await client.chat.completions.create(**chat(max_tokens=5), logprobs=True, top_logprobs=top)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    for token in logprobs.content:
        assert len(token.top_logprobs) <= top
        values = [each.logprob for each in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert len({each.token for each in token.top_logprobs if each.bytes}) == len(
            [each for each in token.top_logprobs if each.bytes]
        )


@pytest.mark.parametrize("fields", [{}, {"logprobs": False}])
async def test_without_asking_there_are_no_log_probabilities(client: AsyncOpenAI, fields: Json) -> None:
    completion = await client.chat.completions.create(**chat(max_tokens=3), **fields)
    assert completion.choices[0].logprobs is None


async def test_offsets_of_tokens_are_places_in_the_text(client: AsyncOpenAI) -> None:
    """Also behind characters of several tokens, and while what may become a stop text is held back."""
    plain = (await client.completions.create(**text(max_tokens=60))).choices[0].text
    almost = [plain[at : at + 5] + "\u0001" for at in (3, 20)]
    choice = (await client.completions.create(**text(max_tokens=60, logprobs=0, stop=almost))).choices[0]
    assert choice.text == plain
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.text_offset is not None
    assert any(ord(character) > 127 for character in plain)
    for token, place in zip(choice.logprobs.tokens, choice.logprobs.text_offset, strict=True):
        if "\ufffd" not in token:
            assert plain[place : place + len(token)] == token


async def test_streamed_log_probabilities_of_a_completion(client: AsyncOpenAI) -> None:
    fields = text(max_tokens=60, logprobs=3)
    whole = (await client.completions.create(**fields)).choices[0].logprobs
    chunks = await chunks_of(await client.completions.create(**fields, stream=True))
    parts = [c.logprobs for chunk in chunks for c in chunk.choices if c.logprobs]
    assert whole is not None
    assert [token for part in parts for token in part.tokens] == whole.tokens
    assert [value for part in parts for value in part.token_logprobs] == whole.token_logprobs
    assert [offset for part in parts for offset in part.text_offset] == whole.text_offset


# --- response_format and functions ------------------------------------------------------------------------------------

SCHEMAS: dict[str, Json] = {
    "enum": {"enum": ["red", "green"]},
    "number": {"type": "integer", "minimum": 3, "maximum": 7},
    "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
    "nested": {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"const": 5}}, "required": ["b"]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "references": {"$ref": "#/$defs/yes", "$defs": {"yes": {"const": "yes"}}},
}
FITS: dict[str, Any] = {
    "enum": lambda value: value in ("red", "green"),
    "number": lambda value: 3 <= value <= 7,
    "list": lambda value: len(value) == 2 and all(isinstance(each, bool) for each in value),
    "nested": lambda value: value["a"]["b"] == 5,
    "references": lambda value: value == "yes",
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("what", SCHEMAS)
async def test_an_answer_fits_its_schema(client: AsyncOpenAI, stream: bool, what: str) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": what, "schema": SCHEMAS[what], "strict": True}}
    content, finish = await ask(client, stream, response_format=wanted, max_tokens=400)
    assert finish == "stop"
    assert FITS[what](json.loads(content))


async def test_a_format_of_text_is_as_none(client: AsyncOpenAI) -> None:
    assert (await ask(client, False, response_format={"type": "text"}))[0] == echo(QUESTION)[1]


@pytest.mark.parametrize("what", SCHEMAS)
async def test_a_response_fits_its_schema(client: AsyncOpenAI, what: str) -> None:
    wanted: Any = {"format": {"type": "json_schema", "name": what, "schema": SCHEMAS[what], "strict": True}}
    response = await client.responses.create(
        model="echo", input=QUESTION, temperature=0, text=wanted, max_output_tokens=400
    )
    assert FITS[what](json.loads(response.output_text))
    assert response.text is not None
    assert response.text.to_dict() == wanted


PLACE = {"type": "object", "properties": {"place": {"enum": ["Seoul", "Kyoto"]}}, "required": ["place"],
         "additionalProperties": False}  # fmt: skip
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PLACE}},
    {"type": "function", "function": {"name": "get_time"}},
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["get_weather", "get_time"])
async def test_the_function_named_is_called(client: AsyncOpenAI, stream: bool, name: str) -> None:
    fields = chat(
        max_tokens=400, tools=TOOLS, tool_choice={"type": "function", "function": {"name": name}},
        parallel_tool_calls=False,
    )  # fmt: skip
    if stream:
        chunks = await chunks_of(await client.chat.completions.create(**fields, stream=True))
        deltas = [call for chunk in chunks for c in chunk.choices for call in c.delta.tool_calls or ()]
        assert [delta.function.name for delta in deltas if delta.function.name] == [name]
        assert [delta.id is not None for delta in deltas] == [True] + [False] * (len(deltas) - 1)
        arguments = json.loads("".join(delta.function.arguments or "" for delta in deltas))
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
    else:
        choice = (await client.chat.completions.create(**fields)).choices[0]
        (call,) = choice.message.tool_calls
        assert call.function.name == name
        arguments = json.loads(call.function.arguments)
        assert choice.finish_reason == "tool_calls"
    assert arguments == {} if name == "get_time" else arguments["place"] in ("Seoul", "Kyoto")


async def test_the_choice_none_calls_nothing(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(**chat(tools=TOOLS, tool_choice="none"))
    assert completion.choices[0].message.content == echo(QUESTION)[1]
    assert completion.choices[0].message.tool_calls is None


async def test_calls_have_ids_of_their_own(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(
        **chat(temperature=1, seed=5, n=6, max_tokens=300, tools=TOOLS, tool_choice="required")
    )
    ids = [call.id for choice in completion.choices for call in choice.message.tool_calls or ()]
    assert len(ids) == len(set(ids)) >= 1
