"""A second client of many people: LangChain's, which reads streams, usage and functions in its own way."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from asking import QUESTION, blocks_in_use, read, records, until
from engine_at_hand import echo
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr


class Answer(BaseModel):
    """A short answer."""

    right: bool


class get_weather(BaseModel):
    """The weather at a place."""

    place: str


@pytest.fixture
def model(site: str, key: str) -> ChatOpenAI:
    """A greedy one."""
    return ChatOpenAI(
        model="echo", base_url=f"{site}/v1", api_key=SecretStr(key), temperature=0, max_retries=0, stream_usage=True
    )


async def together(stream: Any) -> tuple[list[AIMessageChunk], AIMessageChunk]:
    """The chunks, and the message that LangChain adds them up to."""
    chunks = [chunk async for chunk in stream]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return chunks, whole


async def test_a_stream_is_read_as_it_is_written(model: ChatOpenAI) -> None:
    chunks, whole = await together(model.astream(QUESTION))
    assert whole.content == echo(QUESTION)[1]
    assert len([chunk for chunk in chunks if chunk.content]) > 10
    assert whole.response_metadata["finish_reason"] == "stop"
    assert whole.response_metadata["model_name"] == "echo"


async def test_a_stream_tells_its_usage(model: ChatOpenAI, acme: Any, rival: Any) -> None:
    _, whole = await together(model.astream(QUESTION))
    (record,) = await read(records)(acme.tenant)
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["input_tokens"] == record.prompt_tokens == echo(QUESTION)[0]
    assert whole.usage_metadata["output_tokens"] == record.output_tokens
    assert whole.usage_metadata["total_tokens"] == record.prompt_tokens + record.output_tokens
    assert await read(records)(rival.tenant) == []


async def test_whole_and_streamed_answers_are_the_same(model: ChatOpenAI) -> None:
    messages = [SystemMessage("Be brief."), HumanMessage(QUESTION)]
    whole = await model.ainvoke(messages)
    _, streamed = await together(model.astream(messages))
    assert isinstance(whole, AIMessage)
    assert whole.content == streamed.content
    assert whole.usage_metadata is not None
    assert streamed.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == streamed.usage_metadata["output_tokens"]


async def test_a_batch_of_questions_is_answered_in_order(model: ChatOpenAI) -> None:
    questions = [f"What is number {number}?" for number in range(6)]
    answers = await model.abatch(questions)  # type: ignore[arg-type]
    assert [answer.content for answer in answers] == [echo(question)[1] for question in questions]


async def test_a_stop_text_and_a_limit_are_passed_on(model: ChatOpenAI) -> None:
    whole = echo(QUESTION)[1]
    stop = whole[8:11]
    _, stopped = await together(model.astream(QUESTION, stop=[stop]))
    assert stopped.content == whole[: whole.index(stop)]
    _, cut = await together(model.bind(max_tokens=5).astream(QUESTION))
    assert cut.response_metadata["finish_reason"] == "length"


async def test_a_streamed_call_of_a_function_is_put_together(model: ChatOpenAI) -> None:
    calling = model.bind_tools([get_weather], tool_choice="get_weather", parallel_tool_calls=False)
    chunks, whole = await together(calling.bind(max_tokens=500).astream(QUESTION))
    (call,) = whole.tool_calls
    assert call["name"] == "get_weather"
    assert isinstance(call["args"]["place"], str)
    assert call["id"]
    assert len([chunk for chunk in chunks if chunk.tool_call_chunks]) > 1
    history = [HumanMessage(QUESTION), whole, ToolMessage("Rain.", tool_call_id=call["id"])]
    assert (await model.ainvoke(history)).content


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_structured_output_is_an_object(model: ChatOpenAI, method: Any) -> None:
    answer = await model.with_structured_output(Answer, method=method).ainvoke(QUESTION)
    assert isinstance(answer, Answer)


async def test_log_probabilities_come_with_the_stream(model: ChatOpenAI) -> None:
    _, whole = await together(model.bind(logprobs=True, top_logprobs=2, max_tokens=6).astream(QUESTION))
    assert len(whole.response_metadata["logprobs"]["content"]) == 6


async def test_a_key_that_is_none_is_an_authentication_error(site: str) -> None:
    stranger = ChatOpenAI(model="echo", base_url=f"{site}/v1", api_key=SecretStr("pgd_none"), max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        await together(stranger.astream(QUESTION))


class TestLeaving:
    """A reader that stops reading."""

    @pytest.fixture
    def step_ms(self) -> float:
        return 5

    async def test_a_stream_that_is_left_ends_the_generation(
        self, model: ChatOpenAI, engine: str, acme: Any, rival: Any
    ) -> None:
        stream = model.bind(max_tokens=2000, extra_body={"ignore_eos": True}).astream(QUESTION)
        async for chunk in stream:
            if chunk.content:
                break
        await stream.aclose()  # type: ignore[attr-defined]

        async def is_settled() -> bool:
            return bool(await read(records)(acme.tenant)) and await blocks_in_use(engine, acme.tenant) == 0

        await until(is_settled)
        (record,) = await read(records)(acme.tenant)
        assert 0 < record.output_tokens < 2000
        assert await read(records)(rival.tenant) == []
