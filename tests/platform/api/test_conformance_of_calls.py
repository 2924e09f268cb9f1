"""What docs/api.md promises of calls (streams, errors, repetition, headers, hang-ups) through OpenAI's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from asking import QUESTION, blocks_in_use, chat, chunks_of, read, records, text, until
from engine_at_hand import echo
from openai import AsyncOpenAI

Json = dict[str, Any]


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_obfuscation": True}])
async def test_usage_is_only_told_where_it_was_asked_for(client: AsyncOpenAI, options: Any) -> None:
    chunks = await chunks_of(
        await client.chat.completions.create(**chat(max_tokens=3, stream_options=options, stream=True))
    )
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


@pytest.mark.parametrize("path", ["chat", "completions"])
async def test_usage_of_a_stream_is_that_of_the_whole(client: AsyncOpenAI, path: str) -> None:
    create: Any = client.chat.completions.create if path == "chat" else client.completions.create
    fields = chat(n=2, max_tokens=9) if path == "chat" else text(n=2, max_tokens=9)
    whole = (await create(**fields)).usage
    chunks = await chunks_of(await create(**fields, stream=True, stream_options={"include_usage": True}))
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (
        whole.prompt_tokens,
        whole.completion_tokens,
    )


async def test_a_response_streams_its_usage_and_its_reason(client: AsyncOpenAI) -> None:
    fields: Json = {"model": "echo", "input": QUESTION, "temperature": 0, "max_output_tokens": 6}
    events = await chunks_of(await client.responses.create(**fields, stream=True))
    last = events[-1].response
    assert last.usage.output_tokens == 6
    assert last.incomplete_details.reason == "max_output_tokens"
    assert {event.type for event in events} >= {"response.created", "response.output_text.delta"}


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[Json, type[openai.APIStatusError], str, str]] = {
    "model_not_found": (chat(model="x"), openai.NotFoundError, "not_found_error", "model"),
    "invalid_value": (chat(n=0), openai.BadRequestError, "invalid_request_error", "n"),
    "context_length_exceeded": (chat("x" * 5000), openai.BadRequestError, "invalid_request_error", "messages"),
    "unsupported_value": (chat(audio={}), openai.BadRequestError, "invalid_request_error", "audio"),
    "missing_field": ({"model": "echo", "messages": [{"role": "user"}]}, openai.BadRequestError,
                      "invalid_request_error", "messages[0].content"),
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("code", ERRORS)
async def test_errors_are_of_the_clients_own_classes(client: AsyncOpenAI, code: str, stream: bool) -> None:
    body, kind, type_, param = ERRORS[code]
    with pytest.raises(kind) as raised:
        await client.chat.completions.create(**body, stream=stream)
    assert (raised.value.code, raised.value.type, raised.value.param) == (code, type_, param)
    assert raised.value.request_id is not None


async def test_an_unknown_field_is_an_error_with_its_name(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await client.chat.completions.create(**chat(), extra_body={"max_token": 5})
    assert (raised.value.code, raised.value.param) == ("unknown_field", "max_token")


async def test_an_engine_that_is_away_is_told_with_a_time_to_come_back(
    site: str, key: str, settings: Any, engine: str
) -> None:
    settings.PAGODA_ENGINES = []
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=key, max_retries=0) as client:
        assert [model async for model in client.models.list()] == []
        with pytest.raises(openai.InternalServerError) as raised:
            await client.chat.completions.create(**chat())
    settings.PAGODA_ENGINES = [engine]
    assert (raised.value.status_code, raised.value.code) == (503, "engine_unavailable")
    assert int(raised.value.response.headers["retry-after"]) >= 1


async def test_the_client_comes_back_by_itself_after_the_time_it_was_told(site: str, make_key: Any, acme: Any) -> None:
    """OpenAI's client obeys Retry-After; the limit of concurrent generations is free again by then."""
    _, text_of_key = await make_key(acme, concurrent_generations=1)
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text_of_key, max_retries=5) as client:
        answers = await asyncio.gather(*(client.chat.completions.create(**chat()) for _ in range(2)))
    assert [answer.choices[0].message.content for answer in answers] == [echo(QUESTION)[1]] * 2


# --- repeated calls, headers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
async def test_a_repeated_call_is_answered_again_and_billed_once(
    client: AsyncOpenAI, acme: Any, rival: Any, stream: bool
) -> None:
    fields = chat(temperature=1, max_tokens=30, stream=stream)
    again = {"Idempotency-Key": "a key of mine"}
    answers = []
    for _ in range(2):
        raw = await client.chat.completions.with_raw_response.create(**fields, extra_headers=again)
        answer = raw.parse()
        answers.append([c.to_dict() for c in await chunks_of(answer)] if stream else answer.to_dict())
    assert answers[0] == answers[1]
    assert raw.headers["idempotent-replayed"] == "true"
    assert len(await read(records)(acme.tenant)) == 1
    assert await read(records)(rival.tenant) == []


async def test_a_key_of_another_call_is_refused(client: AsyncOpenAI) -> None:
    headers = {"Idempotency-Key": "twice"}
    await client.chat.completions.create(**chat(max_tokens=2), extra_headers=headers)
    with pytest.raises(openai.BadRequestError) as raised:
        await client.chat.completions.create(**chat(max_tokens=3), extra_headers=headers)
    assert raised.value.code == "idempotency_key_reused"


@pytest.mark.parametrize("path", ["chat", "completions", "responses"])
@pytest.mark.parametrize("stream", [True, False])
async def test_limits_are_told_in_the_headers_of_every_generation(
    site: str, make_key: Any, acme: Any, path: str, stream: bool
) -> None:
    _, text_of_key = await make_key(acme, requests_per_minute=9, tokens_per_minute=50_000)
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text_of_key, max_retries=0) as client:
        bodies: dict[str, tuple[Any, Json]] = {
            "chat": (client.chat.completions, chat(max_tokens=2)),
            "completions": (client.completions, text(max_tokens=2)),
            "responses": (client.responses, {"model": "echo", "input": "x", "max_output_tokens": 2}),
        }
        resource, body = bodies[path]
        raw = await resource.with_raw_response.create(**body, stream=stream)
        if stream:
            await chunks_of(raw.parse())
    assert raw.headers["x-ratelimit-limit-requests"] == "9"
    assert raw.headers["x-ratelimit-remaining-requests"] == "8"
    assert raw.headers["x-ratelimit-limit-tokens"] == "50000"
    assert 0 < int(raw.headers["x-ratelimit-remaining-tokens"]) < 50_000
    assert raw.headers["x-ratelimit-reset-tokens"].endswith("s")
    assert raw.headers["x-request-id"].startswith("req_")


# --- models, tokens ---------------------------------------------------------------------------------------------------


async def test_any_key_may_ask_for_models(site: str, make_key: Any, acme: Any) -> None:
    _, text_of_key = await make_key(acme, scopes=["admin"])
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text_of_key, max_retries=0) as client:
        assert (await client.models.retrieve("echo")).id == "echo"


@pytest.mark.parametrize("prompt", ["", "héllo", "안녕", "🙂", "<|im_end|>", "a\u0000b"])
async def test_texts_come_back_from_their_tokens(client: AsyncOpenAI, prompt: str) -> None:
    tokens: Any = await client.post("/tokenize", cast_to=object, body={"model": "echo", "prompt": prompt})
    assert tokens["count"] == len(tokens["tokens"])
    if prompt:
        body = {"model": "echo", "tokens": tokens["tokens"]}
        assert await client.post("/detokenize", cast_to=object, body=body) == {"prompt": prompt}


@pytest.mark.parametrize("body", [{"model": "echo"}, {"model": "echo", "prompt": "x", "messages": []}])
async def test_tokenize_takes_one_of_two(client: AsyncOpenAI, body: Json) -> None:
    with pytest.raises(openai.BadRequestError):
        await client.post("/tokenize", cast_to=object, body=body)


# --- hang-ups ---------------------------------------------------------------------------------------------------------


class TestLeaving:
    """The client's own ways to stop reading."""

    @pytest.fixture
    def step_ms(self) -> float:
        return 5

    @pytest.fixture
    async def impatient(self, site: str, key: str) -> AsyncIterator[AsyncOpenAI]:
        async with AsyncOpenAI(base_url=f"{site}/v1", api_key=key, max_retries=0, timeout=httpx.Timeout(2)) as client:
            yield client

    @pytest.mark.parametrize("way", ["close", "context", "timeout", "cancel"])
    async def test_whoever_leaves_ends_the_generation_and_is_billed_for_it(
        self, client: AsyncOpenAI, impatient: AsyncOpenAI, engine: str, acme: Any, rival: Any, way: str
    ) -> None:
        fields: Json = chat(max_tokens=2000) | {"extra_body": {"ignore_eos": True}}
        if way == "timeout":
            with pytest.raises(openai.APITimeoutError):
                await impatient.chat.completions.create(**fields)
        elif way == "cancel":
            task = asyncio.create_task(client.chat.completions.create(**fields))

            async def is_running() -> bool:
                return await blocks_in_use(engine, acme.tenant) > 0

            await until(is_running)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            stream: Any = await client.chat.completions.create(**fields, stream=True)
            if way == "close":
                await anext(aiter(stream))
                await stream.close()
            else:
                async with stream:
                    async for chunk in stream:
                        if chunk.choices[0].delta.content:
                            break

        async def is_settled() -> bool:
            return bool(await read(records)(acme.tenant)) and await blocks_in_use(engine, acme.tenant) == 0

        await until(is_settled)
        (record,) = await read(records)(acme.tenant)
        assert record.output_tokens < 2000
        assert await read(records)(rival.tenant) == []
