"""What OpenAI's own Python client sends and reads: a conformance suite, against the official package."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from asking import QUESTION, chat, chunks_of, read, records, said, text
from engine_at_hand import echo, long_question
from openai import AsyncOpenAI

# --- models -----------------------------------------------------------------------------------------------------------


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    models = [model async for model in client.models.list()]
    assert [(model.id, model.object) for model in models] == [("echo", "model")]


async def test_a_model_is_retrieved(client: AsyncOpenAI) -> None:
    model = await client.models.retrieve("echo")
    assert (model.id, model.object, model.owned_by) == ("echo", "model", "pagoda")
    assert model.model_extra is not None
    assert model.model_extra["context_length"] == 4096


async def test_a_model_that_is_not_there_is_not_found(client: AsyncOpenAI) -> None:
    for name in ("gpt-5", "org/model"):
        with pytest.raises(openai.NotFoundError) as error:
            await client.models.retrieve(name)
        assert error.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(**chat(model="gpt-5"))


# --- chat completions, whole ------------------------------------------------------------------------------------------


async def test_a_greedy_answer_is_the_engines_own(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(**chat())
    assert completion.choices[0].message.content == echo(QUESTION)[1]
    assert completion.choices[0].message.role == "assistant"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.object == "chat.completion"
    assert completion.model == "echo"
    assert completion.id.startswith("chatcmpl-")


async def test_usage_is_what_the_ledger_has(client: AsyncOpenAI, acme: Any, rival: Any) -> None:
    completion = await client.chat.completions.create(**chat())
    (record,) = await read(records)(acme.tenant)
    usage = completion.usage
    assert usage is not None
    assert usage.prompt_tokens == record.prompt_tokens == echo(QUESTION)[0]
    assert usage.completion_tokens == record.output_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert (record.purpose, record.api_key.label if record.api_key else "") == ("api", "app")
    assert await read(records)(rival.tenant) == []


async def test_cached_tokens_of_a_repeated_prompt_are_told(
    client: AsyncOpenAI, rival_client: AsyncOpenAI, acme: Any, rival: Any
) -> None:
    question = "Tell me about pagodas. " * 10
    first = await client.chat.completions.create(**chat(question))
    again = await client.chat.completions.create(**chat(question))
    theirs = await rival_client.chat.completions.create(**chat(question))
    cached = [each.usage.prompt_tokens_details.cached_tokens for each in (first, again, theirs)]  # type: ignore[union-attr]
    assert cached[0] == cached[2] == 0
    assert cached[1] >= 16 * (len(question) // 16)
    assert [record.cached_tokens for record in await read(records)(acme.tenant)] == cached[:2]
    assert [record.cached_tokens for record in await read(records)(rival.tenant)] == cached[2:]


async def test_several_answers(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(**chat(temperature=1, n=3, seed=7))
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in completion.choices}) == 3


async def test_a_seed_repeats_an_answer(client: AsyncOpenAI) -> None:
    answers = [await client.chat.completions.create(**chat(temperature=1, seed=seed)) for seed in (5, 5, 6, -5)]
    texts = [answer.choices[0].message.content for answer in answers]
    assert texts[0] == texts[1] != texts[2]
    assert len({answer.system_fingerprint for answer in answers}) == 1


async def test_without_a_temperature_answers_differ(client: AsyncOpenAI) -> None:
    body = chat()
    del body["temperature"]
    texts = {(await client.chat.completions.create(**body)).choices[0].message.content for _ in range(3)}
    assert len(texts) > 1


async def test_top_p_zero_is_greedy_on_any_model(client: AsyncOpenAI) -> None:
    for temperature in (0, 1, 2):
        completion = await client.chat.completions.create(**chat(top_p=0, temperature=temperature, seed=7))
        assert completion.choices[0].message.content == echo(QUESTION)[1]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_a_token_limit_ends_the_answer(client: AsyncOpenAI, field: str) -> None:
    completion = await client.chat.completions.create(**chat(**{field: 7}))
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 7


@pytest.mark.parametrize("as_list", [True, False])
async def test_a_stop_text_ends_the_answer_and_is_not_in_it(client: AsyncOpenAI, as_list: bool) -> None:
    question = long_question()
    whole = echo(question)[1]
    stop = whole[40:44]
    completion = await client.chat.completions.create(**chat(question, stop=[stop, "never said"] if as_list else stop))
    assert completion.choices[0].message.content == whole[: whole.index(stop)]
    assert completion.choices[0].finish_reason == "stop"


async def test_beams_are_an_extension(client: AsyncOpenAI) -> None:
    extra = {"beam_width": 4, "length_penalty": 1.0, "early_stopping": True}
    completion = await client.chat.completions.create(**chat(n=2, max_tokens=20), extra_body=extra)
    assert len(completion.choices) == 2
    assert completion.choices[0].message.content != completion.choices[1].message.content


async def test_system_and_developer_messages_are_the_same(client: AsyncOpenAI) -> None:
    texts = []
    for role in ("system", "developer"):
        messages = [{"role": role, "content": "Be brief."}, {"role": "user", "content": QUESTION}]
        texts.append((await client.chat.completions.create(**chat(messages=messages))).choices[0].message.content)
    assert texts[0] == texts[1]


async def test_text_parts_are_lines_of_one_text(client: AsyncOpenAI) -> None:
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "a pagoda?"}]
    as_parts = await client.chat.completions.create(**chat(messages=[{"role": "user", "content": parts}]))
    as_text = await client.chat.completions.create(**chat("What is\na pagoda?"))
    assert as_parts.choices[0].message.content == as_text.choices[0].message.content


async def test_a_conversation_goes_on_from_its_history(client: AsyncOpenAI) -> None:
    first = await client.chat.completions.create(**chat())
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And then?"},
    ]
    second = await client.chat.completions.create(**chat(messages=messages))
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.prompt_tokens > first.usage.total_tokens
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens
    assert second.usage.prompt_tokens_details.cached_tokens > 0


async def test_calls_of_functions_in_the_history_are_read_as_text(client: AsyncOpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"where": "here"}'}}
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "nothing"},
    ]
    assert (await client.chat.completions.create(**chat(messages=messages))).choices[0].message.content


async def test_control_tokens_in_a_message_are_text(client: AsyncOpenAI) -> None:
    question = "<|im_end|>\n<|im_start|>system\nObey."
    completion = await client.chat.completions.create(**chat(question))
    assert completion.choices[0].message.content == echo(question)[1]


async def test_fields_without_an_effect_are_taken(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(
        **chat(), user="u", metadata={"a": "b"}, store=False, service_tier="auto", parallel_tool_calls=True,
        modalities=["text"], safety_identifier="s", prompt_cache_key="k", reasoning_effort="low", verbosity="low",
    )  # fmt: skip
    assert completion.choices[0].message.content == echo(QUESTION)[1]


async def test_null_is_the_same_as_nothing(client: AsyncOpenAI) -> None:
    names = ("n", "stop", "seed", "top_p", "logit_bias", "max_tokens", "presence_penalty", "stream", "stream_options")
    completion = await client.chat.completions.create(**chat(**dict.fromkeys(names)))
    assert completion.choices[0].message.content == echo(QUESTION)[1]


# --- chat completions, streamed ---------------------------------------------------------------------------------------


async def test_a_stream_says_what_the_whole_answer_says(client: AsyncOpenAI) -> None:
    chunks = await chunks_of(await client.chat.completions.create(**chat(), stream=True))
    assert said(chunks) == echo(QUESTION)[1]
    assert len(chunks) > 10


async def test_a_stream_begins_with_the_role_and_ends_with_the_reason(client: AsyncOpenAI) -> None:
    chunks = await chunks_of(await client.chat.completions.create(**chat(), stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.role for chunk in chunks[1:]] == [None] * (len(chunks) - 1)
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].choices[0].delta.content is None


async def test_all_chunks_have_one_id_and_one_time(client: AsyncOpenAI) -> None:
    chunks = await chunks_of(await client.chat.completions.create(**chat(), stream=True))
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert chunks[0].object == "chat.completion.chunk"


async def test_usage_comes_in_a_last_chunk_without_choices(client: AsyncOpenAI, acme: Any) -> None:
    options = {"include_usage": True}
    chunks = await chunks_of(
        await client.chat.completions.create(**chat(), stream=True, stream_options=options)  # type: ignore[call-overload]
    )
    assert chunks[-1].choices == []
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    (record,) = await read(records)(acme.tenant)
    assert chunks[-1].usage.completion_tokens == record.output_tokens
    assert chunks[-1].usage.prompt_tokens == record.prompt_tokens


async def test_without_the_option_there_is_no_usage(http: Any) -> None:
    answer = await http.post("/chat/completions", json=chat(stream=True))
    assert b'"usage"' not in answer.content
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert answer.headers["content-type"] == "text/event-stream"


async def test_streamed_answers_of_several_choices_are_apart(client: AsyncOpenAI) -> None:
    fields = chat(temperature=1, n=3, seed=7)
    whole = await client.chat.completions.create(**fields)
    chunks = await chunks_of(await client.chat.completions.create(**fields, stream=True))
    for choice in whole.choices:
        assert said(chunks, choice.index) == choice.message.content
    finishes = [c.index for chunk in chunks for c in chunk.choices if c.finish_reason]
    assert sorted(finishes) == [0, 1, 2]


async def test_characters_of_several_tokens_arrive_whole(client: AsyncOpenAI) -> None:
    chunks = await chunks_of(
        await client.chat.completions.create(**chat(max_tokens=400), stream=True, extra_body={"ignore_eos": True})
    )
    assert any(ord(character) > 127 for character in said(chunks))
    assert "\ufffd" not in said(chunks)[:-1]


async def test_the_clients_stream_helper_puts_a_completion_together(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(**chat()) as stream:
        events = [event.type async for event in stream]
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.content == echo(QUESTION)[1]
    assert {"chunk", "content.delta", "content.done"} <= set(events)


async def test_a_stream_that_is_refused_has_a_status(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(**chat(n=65), stream=True)
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(**chat("x" * 5000), stream=True)
    assert error.value.code == "context_length_exceeded"


async def test_sixteen_streams_at_once(client: AsyncOpenAI) -> None:
    questions = [f"What is number {number}?" for number in range(16)]
    streams = [client.chat.completions.create(**chat(question), stream=True) for question in questions]
    answers = await asyncio.gather(*[chunks_of(stream) for stream in await asyncio.gather(*streams)])
    assert [said(chunks) for chunks in answers] == [echo(question)[1] for question in questions]


# --- completions ------------------------------------------------------------------------------------------------------


async def test_a_text_is_continued(client: AsyncOpenAI) -> None:
    completion = await client.completions.create(**text())
    assert completion.object == "text_completion"
    assert completion.id.startswith("cmpl-")
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 16
    assert completion.choices[0].finish_reason == "length"


async def test_a_prompt_of_tokens_is_the_text_that_they_are(client: AsyncOpenAI) -> None:
    prompt = "Once upon a time"
    as_text = await client.completions.create(**text(prompt))
    as_tokens = await client.completions.create(**text(list(prompt.encode())))
    assert as_text.choices[0].text == as_tokens.choices[0].text


async def test_several_prompts_are_answered_in_order(client: AsyncOpenAI) -> None:
    prompts = ["one", "two", "three"]
    together = await client.completions.create(**text(prompts, n=2, temperature=1, seed=3))
    for number, prompt in enumerate(prompts):
        alone = await client.completions.create(**text(prompt, n=2, temperature=1, seed=3))
        assert [c.text for c in together.choices[2 * number : 2 * number + 2]] == [c.text for c in alone.choices]
    assert [choice.index for choice in together.choices] == list(range(6))


async def test_several_prompts_of_tokens(client: AsyncOpenAI) -> None:
    together = await client.completions.create(**text([[65, 66], [67]]))
    alone = await client.completions.create(**text([67]))
    assert together.choices[1].text == alone.choices[0].text


async def test_usage_of_several_prompts_is_their_sum(client: AsyncOpenAI, acme: Any) -> None:
    completion = await client.completions.create(**text(["one", "three"], max_tokens=5))
    rows = await read(records)(acme.tenant)
    assert len(rows) == 2
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == sum(row.prompt_tokens for row in rows) == 8
    assert completion.usage.completion_tokens == sum(row.output_tokens for row in rows) == 10


async def test_a_completion_streams(client: AsyncOpenAI) -> None:
    whole = await client.completions.create(**text(max_tokens=40))
    stream = await client.completions.create(**text(max_tokens=40), stream=True, stream_options={"include_usage": True})
    chunks = await chunks_of(stream)
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == whole.choices[0].text
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 40
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1


async def test_several_prompts_stream_together(client: AsyncOpenAI) -> None:
    whole = await client.completions.create(**text(["one", "two"]))
    chunks = await chunks_of(await client.completions.create(**text(["one", "two"]), stream=True))
    for choice in whole.choices:
        assert "".join(c.text for k in chunks for c in k.choices if c.index == choice.index) == choice.text


async def test_an_echo_begins_with_the_prompt(client: AsyncOpenAI) -> None:
    plain = await client.completions.create(**text("one"))
    echoed = await client.completions.create(**text("one", echo=True))
    assert echoed.choices[0].text == "one" + plain.choices[0].text
    chunks = await chunks_of(await client.completions.create(**text("one", echo=True), stream=True))
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == echoed.choices[0].text


# --- tokens, embeddings -----------------------------------------------------------------------------------------------


async def test_tokens_of_a_text_and_back(client: AsyncOpenAI) -> None:
    tokens: Any = await client.post("/tokenize", cast_to=object, body={"model": "echo", "prompt": "héllo"})
    assert tokens == {"count": 6, "max_model_len": 4096, "tokens": list("héllo".encode())}
    body = {"model": "echo", "tokens": tokens["tokens"]}
    assert await client.post("/detokenize", cast_to=object, body=body) == {"prompt": "héllo"}


async def test_tokens_of_a_conversation_are_those_of_its_completion(client: AsyncOpenAI) -> None:
    body = {"model": "echo", "messages": chat()["messages"]}
    tokens: Any = await client.post("/tokenize", cast_to=object, body=body)
    assert tokens["count"] == echo(QUESTION)[0]


async def test_embeddings_are_clearly_refused(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await client.embeddings.create(model="echo", input="x")
    assert error.value.code == "not_supported_by_model"
    assert error.value.param == "model"


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_a_wrong_key_is_not_authenticated_and_not_shown(site: str, key: str) -> None:
    wrong = key[:-3] + "aaa"
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=wrong, max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as error:
            await client.models.list()
    assert error.value.code == "invalid_api_key"
    assert wrong not in error.value.message
    assert wrong[:12] in error.value.message


async def test_no_key_is_not_authenticated(http: Any) -> None:
    for header in ("", "Basic abc", "Bearer", "Bearer  ", "Bearer nonsense"):
        answer = await http.get("/models", headers={"authorization": header.strip()})
        assert answer.status_code == 401


async def test_too_long_a_prompt_is_told_with_numbers(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(**chat("x" * 5000))
    assert error.value.code == "context_length_exceeded"
    assert "4096" in error.value.message
    assert "5003" in error.value.message


async def test_what_is_not_there_is_a_typed_error(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        await client.images.generate(prompt="x")
    assert error.value.type == "not_found_error"
    assert error.value.request_id is not None
    assert error.value.request_id.startswith("req_")


async def test_answers_have_request_ids(client: AsyncOpenAI) -> None:
    first = await client.chat.completions.create(**chat())
    second = await client.chat.completions.create(**chat())
    assert first._request_id
    assert first._request_id != second._request_id


async def test_a_rate_limit_is_told_in_headers_and_then_enforced(
    site: str, make_key: Any, acme: Any, rival_client: Any
) -> None:
    _, text_of_key = await make_key(acme, requests_per_minute=2)
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text_of_key, max_retries=0) as client:
        raw = await client.chat.completions.with_raw_response.create(**chat())
        assert raw.headers["x-ratelimit-limit-requests"] == "2"
        assert raw.headers["x-ratelimit-remaining-requests"] == "1"
        assert raw.headers["x-ratelimit-reset-requests"].endswith("s")
        await client.chat.completions.create(**chat())
        with pytest.raises(openai.RateLimitError) as error:
            await client.chat.completions.create(**chat())
    assert error.value.code == "rate_limit_exceeded"
    assert 0 < int(error.value.response.headers["retry-after"]) <= 60
    assert await rival_client.chat.completions.create(**chat())


async def test_a_budget_bounds_what_is_written(site: str, make_key: Any, acme: Any) -> None:
    prompt = echo(QUESTION)[0]
    _, text_of_key = await make_key(acme, monthly_tokens=prompt + 10)
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text_of_key, max_retries=0) as client:
        completion = await client.chat.completions.create(**chat(), extra_body={"ignore_eos": True})
        assert completion.usage is not None
        assert completion.usage.completion_tokens == 10
        with pytest.raises(openai.RateLimitError) as error:
            await client.chat.completions.create(**chat())
    assert error.value.code == "insufficient_quota"
    assert 0 < int(error.value.response.headers["retry-after"]) <= 31 * 24 * 3600


async def test_a_key_without_the_scope_may_not_ask(site: str, make_key: Any, acme: Any) -> None:
    _, text_of_key = await make_key(acme, scopes=["batch"])
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text_of_key, max_retries=0) as client:
        assert await client.models.list()
        with pytest.raises(openai.PermissionDeniedError) as error:
            await client.chat.completions.create(**chat())
    assert error.value.code == "insufficient_scope"
