"""From the hold to the settlement, whatever dies on the way: no tokens lost, none counted twice, nothing kept."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import httpx
import pytest
from asking import blocks_in_use, chat, generations, holds, read, records, until
from django.utils import timezone

from pagoda.api import served_models
from pagoda.engines import connections
from pagoda.generations import calls, journal
from pagoda.generations.calls import Ask, Keeper, Order
from pagoda.generations.models import Generation
from pagoda.tenants.keys import authenticate_key, change_key, revoke_key, rotate_key
from pagoda.tenants.models import ApiKey
from pagoda_inference.protocol import Sampling

PROMPT = tuple(b"Once upon a time")


@pytest.fixture
def step_ms() -> float:
    return 5


async def begin(site: str, key: str, engine: str, tokens: int, keeper: Keeper | None = None) -> Any:
    """A call that some other part of the process makes, without HTTP."""
    row = await read(authenticate_key)(key)
    assert row is not None
    order = Order(row, engine, served_models.find_model("echo"))
    (call,) = await (keeper or calls.current()).begin(
        order, [Ask(PROMPT, Sampling(max_tokens=tokens, ignore_eos=True))]
    )
    return call


async def read_some(call: Any, tokens: int) -> None:
    async for _ in call.events():
        if call.output_tokens >= tokens:
            return


async def is_settled(tenant: Any) -> bool:
    return all(row.settled for row in await read(generations)(tenant))


async def test_no_text_is_kept_of_a_call(http: Any, acme: Any) -> None:
    answer = (await http.post("/chat/completions", json=chat())).json()
    (generation,) = await read(generations)(acme.tenant)
    assert (generation.text, generation.token_ids) == ("", [])
    assert "messages" not in generation.request
    assert generation.output_tokens == answer["usage"]["completion_tokens"]
    assert await read(holds)(acme.tenant) == 0


async def test_a_call_of_a_process_that_dies_is_settled_by_the_next_one(
    site: str, key: str, engine: str, acme: Any, rival: Any
) -> None:
    """The dead process is a keeper that nobody renews; its connection to the engine is what ends its call."""
    dead = Keeper()
    call = await begin(site, key, engine, 2000, dead)
    reading = asyncio.create_task(read_some(call, 10))
    await reading
    # As if its process were gone: no reader, no renewal, no settlement.
    call._subscription.close()
    await read(Generation.across_tenants.update)(lease_expires=timezone.now())
    await until(lambda: is_settled(acme.tenant))
    (record,) = await read(records)(acme.tenant)
    (generation,) = await read(generations)(acme.tenant)
    assert record.prompt_tokens == len(PROMPT)
    assert 10 <= record.output_tokens < 2000
    assert (generation.text, generation.token_ids) == ("", [])
    assert await read(holds)(acme.tenant) == 0
    assert await read(records)(rival.tenant) == []


async def test_the_recorder_of_the_same_process_leaves_a_call_alone_whose_lease_ran_out(
    site: str, key: str, engine: str, acme: Any
) -> None:
    """A process that was held up for longer than a lease goes on where it was."""
    call = await begin(site, key, engine, 300)
    first = asyncio.Event()

    async def listen() -> None:
        async for _ in call.events():
            first.set()

    listening = asyncio.create_task(listen())
    await first.wait()
    await read(Generation.across_tenants.update)(lease_expires=timezone.now())
    await listening
    assert call.usage.output_tokens == 300
    (record,) = await read(records)(acme.tenant)
    assert record.output_tokens == 300


async def test_two_settlements_of_a_call_count_once(site: str, key: str, engine: str, acme: Any) -> None:
    call = await begin(site, key, engine, 5)
    async for _ in call.events():
        pass
    outcome = journal.Outcome(Generation.State.COMPLETE, "length", call.usage)
    again = await read(journal.settle)(call._snapshot(call.seq), outcome, calls.current().owner)
    assert again is False
    assert len(await read(records)(acme.tenant)) == 1


async def test_a_settlement_that_fails_is_tried_again_before_the_answer_ends(
    http: Any, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 2
    settle = journal.settle

    def fail(*args: Any) -> bool:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ConnectionError("the database is away")
        return settle(*args)

    monkeypatch.setattr(journal, "settle", fail)
    assert (await http.post("/chat/completions", json=chat(max_tokens=5))).status_code == 200
    assert len(await read(records)(acme.tenant)) == 1


async def test_an_engine_that_cannot_be_reached_is_told_as_such(
    http: Any, engine: str, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RETRY_S", 60)  # whoever watches the engine would connect again
    client = await connections.get_client(engine)
    await client.close()
    answer = await http.post("/chat/completions", json=chat())
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_unavailable"
    assert int(answer.headers["retry-after"]) > 0
    assert await read(records)(acme.tenant) == []


async def test_a_connection_that_breaks_ends_a_stream_with_an_error_and_bills_what_was_computed(
    http: Any, engine: str, acme: Any
) -> None:
    body = chat(stream=True, ignore_eos=True, max_tokens=1000)
    async with http.stream("POST", "/chat/completions", json=body) as response:
        lines = [line async for line in _lines_until_broken(response, engine)]
    assert "[DONE]" not in lines[-1]
    assert '"code":"engine_unavailable"' in lines[-1]
    await until(lambda: is_settled(acme.tenant))
    (record,) = await read(records)(acme.tenant)
    assert 0 < record.output_tokens < 1000
    assert await read(holds)(acme.tenant) == 0


async def _lines_until_broken(response: Any, engine: str) -> Any:
    broken = False
    async for line in response.aiter_lines():
        if line:
            yield line
        if not broken and '"content":"' in line and '"content":""' not in line:
            broken = True
            client = await connections.get_client(engine)
            client._disconnected(connections.EngineUnavailable("the connection broke"))
            await client._channel.close()


async def test_a_revoked_key_ends_what_it_has_under_way_and_asks_no_more(
    site: str, make_key: Any, acme: Any, rival_client: Any, engine: str
) -> None:
    row, text = await make_key(acme)
    body = chat(stream=True, ignore_eos=True, max_tokens=4000)
    theirs = rival_client.chat.completions.create(**chat(max_tokens=5))
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {text}"}, timeout=30, trust_env=False) as client:
        async with client.stream("POST", f"{site}/v1/chat/completions", json=body) as response:
            lines = aiter(response.aiter_lines())
            await anext(lines)
            await read(revoke_key)(row, who=acme.admin)
            begun = time.monotonic()
            last = ""
            async for line in lines:
                last = line or last
            assert time.monotonic() - begun < 5
        assert '"code":"invalid_api_key"' in last
        while (await client.get(f"{site}/v1/models")).status_code == 200:
            assert time.monotonic() - begun < 5
    assert await blocks_in_use(engine, acme.tenant) == 0
    assert (await theirs).choices


async def test_a_key_that_loses_its_scope_ends_what_it_has_under_way_and_asks_no_more(
    site: str, make_key: Any, acme: Any, rival_client: Any, engine: str
) -> None:
    """It is good for the rest: here for files."""
    row, text = await make_key(acme)
    body = chat(stream=True, ignore_eos=True, max_tokens=4000)
    theirs = rival_client.chat.completions.create(**chat(max_tokens=5))
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {text}"}, timeout=30, trust_env=False) as client:
        async with client.stream("POST", f"{site}/v1/chat/completions", json=body) as response:
            lines = aiter(response.aiter_lines())
            await anext(lines)
            await read(change_key)(row, who=acme.admin, label=row.label, scopes=["batch"])
            begun = time.monotonic()
            last = ""
            async for line in lines:
                last = line or last
        assert '"code":"invalid_api_key"' in last
        assert "scope" in last
        while (refused := await client.post(f"{site}/v1/chat/completions", json=chat(max_tokens=1))).is_success:
            assert time.monotonic() - begun < 5
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
        assert (await client.get(f"{site}/v1/files")).status_code == 200
    assert time.monotonic() - begun < 5
    assert await blocks_in_use(engine, acme.tenant) == 0
    (record,) = [each for each in await read(records)(acme.tenant) if each.output_tokens > 1]
    assert record.output_tokens < 4000
    assert (await theirs).choices


async def test_a_key_that_loses_another_scope_goes_on(site: str, make_key: Any, acme: Any) -> None:
    row, text = await make_key(acme)
    body = chat(stream=True, ignore_eos=True, max_tokens=700)
    client = httpx.AsyncClient(headers={"authorization": f"Bearer {text}"}, timeout=30, trust_env=False)
    async with client, client.stream("POST", f"{site}/v1/chat/completions", json=body) as response:
        lines = aiter(response.aiter_lines())
        await anext(lines)
        await read(change_key)(row, who=acme.admin, label=row.label, scopes=["chat"])
        last = [line async for line in lines if line][-1]
    assert last == "data: [DONE]"


async def test_a_rotated_key_asks_until_its_overlap_is_over_and_an_expired_one_no_more(
    site: str, make_key: Any, acme: Any, rival_client: Any
) -> None:
    row, old = await make_key(acme, requests_per_minute=1000)
    _, new = await read(rotate_key)(row, who=acme.admin, overlap=timedelta(minutes=1))

    async with httpx.AsyncClient(base_url=f"{site}/v1", timeout=30, trust_env=False) as client:

        async def status(text: str) -> int:
            return (await client.get("/models", headers={"authorization": f"Bearer {text}"})).status_code

        assert [await status(old), await status(new)] == [200, 200]
        begun = time.monotonic()
        await read(ApiKey.across_tenants.filter(pk=row.pk).update)(expires=timezone.now() + timedelta(seconds=2))
        while await status(old) == 200:
            assert time.monotonic() - begun < 2 + 5
        assert time.monotonic() - begun > 1.9
        assert [await status(old), await status(new)] == [401, 200]
    assert [model.id async for model in rival_client.models.list()] == ["echo"]


async def test_the_key_of_a_suspended_tenant_asks_no_more(http: Any, acme: Any) -> None:
    acme.tenant.is_active = False
    await read(acme.tenant.save)()
    begun = time.monotonic()
    while (await http.get("/models")).status_code == 200:
        assert time.monotonic() - begun < 5
    refused = await http.get("/models")
    assert refused.status_code == 401
    assert "its tenant is suspended" in refused.json()["error"]["message"]


async def test_a_stream_of_a_tenant_that_is_suspended_is_not_worth_another_try(
    site: str, make_key: Any, acme: Any, rival_client: Any, engine: str
) -> None:
    _, text = await make_key(acme)
    body = chat(stream=True, ignore_eos=True, max_tokens=4000)
    theirs = rival_client.chat.completions.create(**chat(max_tokens=5))
    client = httpx.AsyncClient(headers={"authorization": f"Bearer {text}"}, timeout=30, trust_env=False)
    async with client, client.stream("POST", f"{site}/v1/chat/completions", json=body) as response:
        lines = aiter(response.aiter_lines())
        await anext(lines)
        acme.tenant.is_active = False
        await read(acme.tenant.save)()
        last = [line async for line in lines if line][-1]
    assert '"code":"invalid_api_key"' in last
    assert "suspended" in last
    assert await blocks_in_use(engine, acme.tenant) == 0
    assert (await theirs).choices


async def test_a_process_that_stops_leaves_its_calls_to_the_others(site: str, key: str, engine: str, acme: Any) -> None:
    keeper = Keeper()
    keeper.open()
    call = await begin(site, key, engine, 2000, keeper)
    keeper._calls[call.id] = call
    await read_some(call, 10)
    await keeper.close()
    await until(lambda: is_settled(acme.tenant))
    (record,) = await read(records)(acme.tenant)
    assert 10 <= record.output_tokens < 2000
    assert await read(holds)(acme.tenant) == 0
