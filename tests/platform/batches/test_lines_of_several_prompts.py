"""Lines that ask for several prompts at once, under limits that have no room for all of them together."""

from __future__ import annotations

from typing import Any

import pytest
from asking import holds, read
from lines import billed, carried_out, each_once, results, text_line
from openai import AsyncOpenAI

from pagoda.usage.models import TenantLimits


@pytest.mark.parametrize("limit", [{"concurrent_generations": 2}, {"requests_per_minute": 2}])
async def test_a_line_that_can_never_fit_fails_at_once_and_the_others_do_not(
    client: AsyncOpenAI, submit: Any, acme: Any, rival: Any, limit: dict[str, int]
) -> None:
    await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, **limit)
    asked = [text_line("three", ["one", "two", "three"]), text_line("two", ["four", "five"])]
    batch = await carried_out(client, await submit(asked, "/v1/completions"))
    output, errors = await results(client, batch)
    assert each_once(asked, output, errors)
    [error] = errors
    assert error["custom_id"] == "three"
    assert (error["response"]["status_code"], error["response"]["body"]["error"]["type"]) == (429, "rate_limit_error")
    [answer] = output
    assert len(answer["response"]["body"]["choices"]) == 2
    assert (await read(billed)(acme.tenant))["records"] == 2
    assert await read(billed)(rival.tenant) == {}
    assert await read(holds)(acme.tenant) == 0
