"""The Responses API, with OpenAI's own client."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from asking import QUESTION, read, records
from engine_at_hand import echo
from openai import AsyncOpenAI

from pagoda.tenants.keys import revoke_key

ASKED: dict[str, Any] = {"model": "echo", "input": QUESTION, "temperature": 0}


async def test_a_text_is_answered(client: AsyncOpenAI, acme: Any, rival: Any) -> None:
    response = await client.responses.create(**ASKED, metadata={"a": "b"})
    assert response.output_text == echo(QUESTION)[1]
    assert (response.status, response.object, response.error) == ("completed", "response", None)
    assert response.id.startswith("resp_")
    assert response.metadata == {"a": "b"}
    (record,) = await read(records)(acme.tenant)
    assert response.usage is not None
    assert response.usage.input_tokens == record.prompt_tokens == echo(QUESTION)[0]
    assert response.usage.output_tokens == record.output_tokens
    assert response.usage.total_tokens == record.prompt_tokens + record.output_tokens
    assert await read(records)(rival.tenant) == []


async def test_cached_tokens_are_told(client: AsyncOpenAI) -> None:
    first = await client.responses.create(**ASKED | {"input": QUESTION * 5})
    again = await client.responses.create(**ASKED | {"input": QUESTION * 5})
    assert first.usage is not None
    assert again.usage is not None
    assert first.usage.input_tokens_details.cached_tokens == 0
    assert again.usage.input_tokens_details.cached_tokens >= 64


async def test_events_are_numbered_and_end_with_the_response(client: AsyncOpenAI) -> None:
    events = [event async for event in await client.responses.create(**ASKED, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.content_part.added"),
    ]
    assert kinds[-4:] == [
        *("response.output_text.done", "response.content_part.done"),
        *("response.output_item.done", "response.completed"),
    ]
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == events[-1].response.output_text == echo(QUESTION)[1]  # type: ignore[union-attr]


async def test_the_clients_stream_helper_puts_a_response_together(client: AsyncOpenAI) -> None:
    async with client.responses.stream(**ASKED) as stream:
        async for _ in stream:
            pass
        response = await stream.get_final_response()
    assert response.output_text == echo(QUESTION)[1]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_response_that_is_cut_says_so(client: AsyncOpenAI, stream: bool) -> None:
    if stream:
        events = [event async for event in await client.responses.create(**ASKED, max_output_tokens=5, stream=True)]
        assert events[-1].type == "response.incomplete"
        response = events[-1].response
    else:
        response = await client.responses.create(**ASKED, max_output_tokens=5)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


async def test_a_conversation_may_be_what_was_answered_before(client: AsyncOpenAI) -> None:
    first = await client.responses.create(**ASKED, instructions="Be brief.")
    conversation: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]
    conversation += [item.model_dump(exclude_none=True) for item in first.output]
    conversation.append({"role": "user", "content": "And then?"})
    second = await client.responses.create(**ASKED | {"input": conversation}, instructions="Be brief.")
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.total_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0


class TestFailing:
    """A key that is revoked while its response is written."""

    @pytest.fixture
    def step_ms(self) -> float:
        return 50

    async def test_a_failure_is_the_last_event_with_the_next_number(self, site: str, make_key: Any, acme: Any) -> None:
        row, text = await make_key(acme)
        events = []
        async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text, max_retries=0) as client:
            async for event in await client.responses.create(**ASKED, stream=True):
                events.append(event)
                if len(events) == 6:
                    await read(revoke_key)(row, who=acme.admin)
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].type == "response.failed"
        response = events[-1].response
        assert response.status == "failed"
        assert response.error is not None
        assert response.error.code == "invalid_api_key"


REFUSED: dict[str, Any] = {
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "background": True,
    "tools": [{"type": "web_search"}],
    "truncation": "auto",
    "reasoning": {"effort": "low"},
}


@pytest.mark.parametrize("field", REFUSED)
async def test_what_would_have_to_be_stored_is_refused(client: AsyncOpenAI, field: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await client.responses.create(**ASKED, **{field: REFUSED[field]})
    assert error.value.param == field


async def test_an_image_is_refused(client: AsyncOpenAI) -> None:
    content = [{"type": "input_image", "image_url": "x", "detail": "auto"}]
    with pytest.raises(openai.BadRequestError) as error:
        await client.responses.create(**ASKED | {"input": [{"role": "user", "content": content}]})
    assert error.value.param == "input[0].content[0].type"
