"""Answers that were preempted on their way: what they say, with log probabilities, is what they say undisturbed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asking import chunks_of, text
from openai import AsyncOpenAI

from pagoda.engines import connections

TOGETHER = 6


@pytest.fixture
def engine_options() -> dict[str, Any]:
    """Room for a third of what the answers come to together."""
    return {"pool_tokens": 512}


@pytest.fixture
def step_ms() -> float:
    """So slow that the answers are together, however long a busy machine takes to ask for them all."""
    return 5


@pytest.mark.parametrize("stream", [True, False])
async def test_log_probabilities_after_a_preemption_are_those_of_an_answer_alone(
    client: AsyncOpenAI, engine: str, acme: Any, rival: Any, stream: bool
) -> None:
    bodies = [
        text(f"Number {number}: " + "x" * 40, max_tokens=200, logprobs=3) | {"extra_body": {"ignore_eos": True}}
        for number in range(TOGETHER)
    ]

    def tokens_of(logprobs: Any) -> list[Any]:
        return list(zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True))

    async def told(body: dict[str, Any], streamed: bool) -> tuple[str, list[Any]]:
        if streamed:
            chunks = await chunks_of(await client.completions.create(**body, stream=True))
            choices = [choice for chunk in chunks for choice in chunk.choices]
            tokens = [each for choice in choices if choice.logprobs for each in tokens_of(choice.logprobs)]
            return "".join(choice.text for choice in choices), tokens
        choice = (await client.completions.create(**body)).choices[0]
        return choice.text, tokens_of(choice.logprobs)

    async def preemptions() -> int:
        report = await anext(aiter((await connections.get_client(engine)).watch(0)))
        return sum(sum(account.preemptions.values()) for account in report.accounts)

    alone = [await told(body, False) for body in bodies]
    assert await preemptions() == 0
    together = await asyncio.gather(*(told(body, stream) for body in bodies))
    assert await preemptions() > 0
    assert [len(tokens) for _, tokens in together] == [200] * TOGETHER
    assert together == alone
