"""What a call without a bound on its answer holds, and gets: the lesser of what context and budget have left."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
from asking import QUESTION, chat, holds, read, records, until
from engine_at_hand import echo
from openai import AsyncOpenAI

from pagoda.usage.models import Meter, OpenHold, TenantLimits

CONTEXT = 128
PROMPT = echo(QUESTION)[0]
ROOM = CONTEXT - PROMPT
TO_THE_END = {"extra_body": {"ignore_eos": True}}


@pytest.fixture
def engine_options() -> dict[str, Any]:
    return {"context_length": CONTEXT}


def used(tenant: Any) -> tuple[int, int]:
    """Tokens of the month, and those that are held."""
    meter = Meter.across_tenants.get(subject=tenant.pk)
    return meter.used, meter.held


CASES: dict[str, tuple[int | None, dict[str, Any], int | None]] = {
    # budget of the tenant, what is asked -> tokens of each answer; None: refused
    "no budget": (None, {}, ROOM),
    "a budget that is no bound": (10_000, {}, ROOM),
    "as much budget as context": (CONTEXT, {}, ROOM),
    "one less": (CONTEXT - 1, {}, ROOM - 1),
    "room for one token": (PROMPT + 1, {}, 1),
    "room for the prompt alone": (PROMPT, {}, None),
    "less than the prompt": (PROMPT - 1, {}, None),
    "nothing": (0, {}, None),
    "three answers": (PROMPT + 90, {"n": 3}, 30),
    "three answers and two tokens": (PROMPT + 92, {"n": 3}, 30),
    "one token for each of three": (PROMPT + 3, {"n": 3}, 1),
    "one token too few for three": (PROMPT + 2, {"n": 3}, None),
    "a bound beyond the context": (CONTEXT, {"max_tokens": 5000}, ROOM),
    "a bound beyond the budget": (CONTEXT - 1, {"max_tokens": 5000}, None),
    "a bound that the budget has room for": (PROMPT + 7, {"max_tokens": 7}, 7),
    "a bound that it has no room for": (PROMPT + 6, {"max_tokens": 7}, None),
}


@pytest.mark.parametrize("what", CASES)
async def test_an_answer_gets_the_lesser_of_context_and_budget(
    client: AsyncOpenAI, rival_client: AsyncOpenAI, acme: Any, what: str
) -> None:
    budget, fields, tokens = CASES[what]
    if budget is not None:
        await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, monthly_tokens=budget)
    asking = client.chat.completions.create(**chat(**fields), **TO_THE_END)
    if tokens is None:
        with pytest.raises(openai.RateLimitError) as refused:
            await asking
        assert refused.value.code == "insufficient_quota"
        assert str(budget) in refused.value.message
        assert await read(records)(acme.tenant) == []
    else:
        completion = await asking
        assert completion.usage is not None
        assert completion.usage.completion_tokens == tokens * fields.get("n", 1)
        assert {choice.finish_reason for choice in completion.choices} == {"length"}
        if budget is not None:
            assert await read(used)(acme.tenant) == (completion.usage.total_tokens, 0)
    assert await read(holds)(acme.tenant) == 0
    theirs = await rival_client.chat.completions.create(**chat(), **TO_THE_END)
    assert theirs.usage is not None
    assert theirs.usage.completion_tokens == ROOM


async def test_beams_count_like_answers(client: AsyncOpenAI, acme: Any) -> None:
    await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, monthly_tokens=PROMPT + 4 * 10 + 3)
    completion = await client.chat.completions.create(
        **chat(), extra_body={"beam_width": 4, "ignore_eos": True, "early_stopping": "never"}
    )
    assert completion.usage is not None
    assert completion.usage.completion_tokens <= 4 * 10
    assert (await read(used)(acme.tenant))[1] == 0


async def test_a_response_is_bounded_too(client: AsyncOpenAI, acme: Any) -> None:
    await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, monthly_tokens=PROMPT + 3)
    response = await client.responses.create(model="echo", input=QUESTION, temperature=0)
    assert response.usage is not None
    assert response.usage.output_tokens == 3
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(("of_tenant", "of_key", "tokens"), [(50, 9, 9), (9, 50, 9), (500, 500, ROOM)])
async def test_the_tighter_of_the_tenants_and_the_keys_budget_counts(
    site: str, make_key: Any, acme: Any, of_tenant: int, of_key: int, tokens: int
) -> None:
    await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, monthly_tokens=PROMPT + of_tenant)
    _, text = await make_key(acme, monthly_tokens=PROMPT + of_key)
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text, max_retries=0) as client:
        completion = await client.chat.completions.create(**chat(), **TO_THE_END)
    assert completion.usage is not None
    assert completion.usage.completion_tokens == tokens


async def test_what_can_never_fit_is_not_worth_another_try(site: str, make_key: Any, acme: Any) -> None:
    _, text = await make_key(acme, monthly_tokens=5)
    asked = 0

    async def count(_: httpx.Request) -> None:
        nonlocal asked
        asked += 1

    http = openai.DefaultAsyncHttpxClient(event_hooks={"request": [count]})
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text, max_retries=3, http_client=http) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**chat())
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.value.response.headers
    assert asked == 1


class TestSideBySide:
    """Calls that run at the same time."""

    @pytest.fixture
    def step_ms(self) -> float:
        return 60

    async def test_the_second_gets_what_the_first_has_left(self, client: AsyncOpenAI, acme: Any) -> None:
        left = 50
        budget = CONTEXT + PROMPT + left
        await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, monthly_tokens=budget)
        first = asyncio.create_task(client.chat.completions.create(**chat(), **TO_THE_END))
        await until(read(OpenHold.across_tenants.exists))
        (held,) = await read(lambda: list(OpenHold.across_tenants.values_list("tokens", flat=True)))()
        assert held == CONTEXT
        second = asyncio.create_task(client.chat.completions.create(**chat(), **TO_THE_END))

        async def both_hold() -> bool:
            return await read(holds)(acme.tenant) == 2

        await until(both_hold)
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**chat())
        assert refused.value.code == "insufficient_quota"
        tokens = [completion.usage.completion_tokens for completion in await asyncio.gather(first, second)]  # type: ignore[union-attr]
        assert tokens == [ROOM, left]
        assert await read(used)(acme.tenant) == (budget, 0)

    async def test_whoever_leaves_gives_the_rest_back(self, client: AsyncOpenAI, acme: Any) -> None:
        await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, monthly_tokens=CONTEXT)
        stream = await client.chat.completions.create(**chat(), **TO_THE_END, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        assert await read(used)(acme.tenant) == (0, CONTEXT)
        await stream.close()

        async def is_settled() -> bool:
            return await read(holds)(acme.tenant) == 0

        await until(is_settled)
        (record,) = await read(records)(acme.tenant)
        assert await read(used)(acme.tenant) == (PROMPT + record.output_tokens, 0)
        assert 0 < record.output_tokens < ROOM
