"""A batch from its file to its results, through the API."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import openai
import pytest
from asking import holds, read, until
from django.utils import timezone
from engine_at_hand import echo
from lines import billed, carried_out, each_once, jsonl, line, lines, results, text_line, told
from openai import AsyncOpenAI

from pagoda.batches import lease, runner
from pagoda.batches.models import Batch, BatchLine
from pagoda.generations.models import Generation
from pagoda.tenants.models import ApiKey
from pagoda.usage.models import TenantLimits, UsageRecord


async def test_a_batch_answers_every_line_once_in_the_order_of_its_file(
    client: AsyncOpenAI, submit: Any, acme: Any, rival: Any, asked_for: list[str]
) -> None:
    asked = lines(200)
    batch = await submit(asked, metadata={"for": "test"})
    assert (batch.status, batch.object, batch.endpoint) == ("validating", "batch", "/v1/chat/completions")
    assert batch.expires_at == batch.created_at + 24 * 3600
    assert asked_for == ["batches.run"]
    batch = await carried_out(client, batch)
    assert (batch.status, batch.metadata, batch.errors) == ("completed", {"for": "test"}, None)
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (200, 200, 0)
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    output, errors = await results(client, batch)
    assert errors == []
    assert [each["custom_id"] for each in output] == [each["custom_id"] for each in asked]
    for sent, got in zip(asked, output, strict=True):
        answer = got["response"]["body"]["choices"][0]["message"]["content"]
        assert answer == echo(sent["body"]["messages"][0]["content"])[1]
        assert (got["error"], got["response"]["status_code"]) == (None, 200)
    assert len({each["id"] for each in output} | {each["response"]["request_id"] for each in output}) == 400
    assert await read(billed)(acme.tenant) == told(output)
    assert await read(billed)(rival.tenant) == {}
    assert await read(BatchLine.across_tenants.count)() == await read(holds)(acme.tenant) == 0


async def test_its_lines_are_of_the_batch_class_and_of_the_key_that_made_it(
    client: AsyncOpenAI, submit: Any, acme: Any, key: str
) -> None:
    await carried_out(client, await submit(lines(3)))

    def rows() -> list[Any]:
        return list(Generation.across_tenants.filter(tenant=acme.tenant).select_related("api_key"))

    found = await read(rows)()
    assert {(row.purpose, row.state, row.request["request_class"]) for row in found} == {("batch", "complete", "batch")}
    assert {f"pgd_{row.api_key.prefix}" for row in found} == {key[:12]}


async def test_a_line_is_answered_as_the_endpoint_answers(client: AsyncOpenAI, submit: Any) -> None:
    fields = {"n": 2, "max_tokens": 5, "logprobs": True, "top_logprobs": 2, "seed": 3, "temperature": 1}
    direct = await client.chat.completions.create(**line("", **fields)["body"])
    batch = await carried_out(client, await submit([line("a", **fields)]))
    (output,), _ = await results(client, batch)
    told_directly = direct.model_dump(mode="json", include={"choices", "usage", "model", "object"})
    body = output["response"]["body"]
    assert [each["message"]["content"] for each in body["choices"]] == [
        each["message"]["content"] for each in told_directly["choices"]
    ]
    assert body["choices"][0]["logprobs"]["content"] == told_directly["choices"][0]["logprobs"]["content"]
    assert body["usage"]["completion_tokens"] == 10
    assert (body["model"], body["object"]) == ("echo", "chat.completion")


async def test_completions_with_several_prompts(client: AsyncOpenAI, submit: Any, acme: Any) -> None:
    asked = [
        text_line("several", ["One", "Two", "Three"], max_tokens=4, n=2, temperature=1, seed=1),
        text_line("tokens", [1, 2, 3], max_tokens=3, logprobs=2),
        text_line("echo", "Once", echo=True, max_tokens=2),
    ]
    direct = [await client.completions.create(**each["body"]) for each in asked]
    before = await read(billed)(acme.tenant)
    batch = await carried_out(client, await submit(asked, "/v1/completions"))
    output, errors = await results(client, batch)
    assert errors == []
    for got, expected in zip(output, direct, strict=True):
        choices = expected.model_dump(mode="json")["choices"]
        assert [each["text"] for each in got["response"]["body"]["choices"]] == [each["text"] for each in choices]
        assert got["response"]["body"]["choices"][0]["logprobs"] == choices[0]["logprobs"]
    record_count = (await read(billed)(acme.tenant) - before)["records"]
    assert record_count == 5


async def test_faults_of_lines_are_in_the_error_file_as_the_endpoint_tells_them(
    client: AsyncOpenAI, submit: Any, acme: Any
) -> None:
    bad = [
        line("no-model", model="gpt-5"),
        line("unknown", colour="red"),
        line("wrong", temperature=7),
        line("long", "pagoda " * 3000),
        line("streamed", stream=True),
        line("forbidden", n=2, beam_width=1),
    ]
    expected = {
        "no-model": (404, "model_not_found", "model"),
        "unknown": (400, "unknown_field", "colour"),
        "wrong": (400, "invalid_value", "temperature"),
        "long": (400, "context_length_exceeded", "messages"),
        "streamed": (400, "unsupported_value", "stream"),
        "forbidden": (400, "invalid_value", "n"),
    }
    asked = [line("good"), *bad, line("also-good")]
    batch = await carried_out(client, await submit(asked))
    assert batch.status == "completed"
    assert batch.request_counts.model_dump() == {"total": 8, "completed": 2, "failed": 6}
    output, errors = await results(client, batch)
    assert [each["custom_id"] for each in output] == ["good", "also-good"]
    found = {
        each["custom_id"]: (each["response"]["status_code"], error["code"], error["param"])
        for each in errors
        if (error := each["response"]["body"]["error"])
    }
    assert found == expected
    assert each_once(asked, output, errors)
    assert (await read(billed)(acme.tenant))["records"] == 2


@pytest.mark.parametrize(
    ("bad", "code", "param", "number"),
    [
        ("{not json", "invalid_json_line", None, 2),
        ('["a list"]', "invalid_json_line", None, 2),
        ('{"custom_id": "a", "custom_id": "b"}', "invalid_json_line", None, 2),
        ('{"method": "POST", "url": "/v1/chat/completions", "body": {}}', "missing_required_parameter", "custom_id", 2),
        (line("x") | {"method": "GET"}, "invalid_method", "method", 2),
        (line("x") | {"url": "/v1/completions"}, "invalid_url", "url", 2),
        (line("x") | {"body": "text"}, "invalid_value", "body", 2),
        (line("x") | {"custom_id": 7}, "invalid_value", "custom_id", 2),
        (line("first"), "duplicate_custom_id", "custom_id", 2),
    ],
)
async def test_a_bad_line_fails_the_batch_before_anything_is_asked(
    client: AsyncOpenAI, submit: Any, acme: Any, bad: Any, code: str, param: str | None, number: int
) -> None:
    batch = await carried_out(client, await submit([line("first"), bad, line("third")]))
    assert batch.status == "failed"
    (error,) = batch.errors.data
    assert (error.code, error.param, error.line) == (code, param, number)
    assert batch.failed_at >= batch.created_at
    assert (batch.output_file_id, batch.error_file_id) == (None, None)
    assert await read(billed)(acme.tenant) == {}


async def test_all_bad_lines_of_a_file_are_told(client: AsyncOpenAI, submit: Any) -> None:
    batch = await carried_out(client, await submit(["{", line("a"), "", "[]"]))
    assert [error.line for error in batch.errors.data] == [1, 4]


async def test_a_file_with_too_many_lines_fails(client: AsyncOpenAI, submit: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("pagoda.batches.input_file.MAX_LINES", 3)
    assert (await carried_out(client, await submit(lines(3)))).status == "completed"
    batch = await carried_out(client, await submit(lines(4)))
    assert [(error.code, error.line) for error in batch.errors.data] == [("too_many_tasks", 4)]


async def test_a_file_of_blank_lines_fails(client: AsyncOpenAI, submit: Any) -> None:
    batch = await carried_out(client, await submit(["", "  ", ""]))
    assert [error.code for error in batch.errors.data] == ["empty_file"]


async def test_a_batch_that_nobody_carried_out_in_time_expires(client: AsyncOpenAI, submit: Any) -> None:
    asked = lines(3)
    batch = await submit(asked)
    later = timezone.now() + timedelta(hours=25)
    batch = await carried_out(client, batch, now=lambda: later)
    assert (batch.status, batch.expired_at) == ("expired", int(later.timestamp()))


class TestWhileAnswersAreLong:
    @pytest.fixture
    def step_ms(self) -> float:
        return 20

    async def test_a_batch_expires_with_what_it_has(
        self, client: AsyncOpenAI, submit: Any, acme: Any, settings: Any
    ) -> None:
        settings.PAGODA_BATCH_LINES_IN_FLIGHT = 2
        begun = timezone.now()
        hours = [0.0]
        asked = [line("short", max_tokens=1), line("short-too", max_tokens=1), *lines(30, ignore_eos=True)]
        batch = await submit(asked)
        running = asyncio.create_task(runner.run_waiting(lambda: False, now=lambda: begun + timedelta(hours=hours[0])))
        await until(lambda: _written(2))
        hours[0] = 24.1
        await running
        await until(_all_settled)
        batch = await client.batches.retrieve(batch.id)
        assert batch.status == "expired"
        output, errors = await results(client, batch)
        assert [each["custom_id"] for each in output] == ["short", "short-too"]
        assert {each["error"]["code"] for each in errors} == {"batch_expired"}
        assert {each["response"] for each in errors} == {None}
        assert each_once(asked, output, errors)
        assert batch.request_counts.model_dump() == {"total": 32, "completed": 2, "failed": 30}
        assert await read(holds)(acme.tenant) == 0

    async def test_a_cancelled_batch_keeps_what_it_has_and_stops_the_rest(
        self, client: AsyncOpenAI, submit: Any, acme: Any
    ) -> None:
        asked = [line("short", max_tokens=1), *lines(40, ignore_eos=True)]
        batch = await submit(asked)
        running = asyncio.create_task(runner.run_waiting(lambda: False))
        await until(lambda: _begun(33))
        await until(lambda: _written(1))
        batch = await client.batches.cancel(batch.id)
        assert batch.status == "cancelling"
        await running
        await until(_all_settled)
        batch = await client.batches.retrieve(batch.id)
        assert batch.status == "cancelled"
        assert batch.cancelling_at <= batch.cancelled_at
        output, errors = await results(client, batch)
        assert [each["custom_id"] for each in output] == ["short"]
        assert each_once(asked, output, errors)
        assert {each["error"]["code"] for each in errors} == {"batch_cancelled"}
        states = await read(_states)(acme.tenant)
        assert states["streaming"] == 0
        assert states["complete"] == 1
        assert states["cancelled"] == 32
        assert (await client.batches.cancel(batch.id)).status == "cancelled"

    async def test_a_runner_that_stops_lets_what_is_in_flight_end_and_leaves_the_rest_to_the_next(
        self, client: AsyncOpenAI, submit: Any, acme: Any, rival: Any, settings: Any
    ) -> None:
        settings.PAGODA_BATCH_LINES_IN_FLIGHT = 4
        asked = lines(120, max_tokens=12)
        batch = await submit(asked)
        stop = [False]
        running = asyncio.create_task(runner.run_waiting(lambda: stop[0]))
        await until(lambda: _written(1))
        stop[0] = True
        await running
        begun = await read(_states)(acme.tenant)
        assert begun == _none | {"complete": await read(BatchLine.across_tenants.count)()}
        assert 4 <= begun["complete"] < 120
        left = await client.batches.retrieve(batch.id)
        assert (left.status, left.request_counts.completed) == ("in_progress", begun["complete"])
        batch = await carried_out(client, batch)
        output, errors = await results(client, batch)
        assert (batch.status, len(output), errors) == ("completed", 120, [])
        assert each_once(asked, output)
        assert await read(_states)(acme.tenant) == _none | {"complete": 120}
        assert await read(billed)(acme.tenant) == told(output)
        assert await read(billed)(rival.tenant) == {}

    async def test_a_runner_that_stops_waits_no_longer_than_its_grace(
        self, client: AsyncOpenAI, submit: Any, acme: Any, settings: Any
    ) -> None:
        settings.PAGODA_BATCH_LINES_IN_FLIGHT = 4
        settings.PAGODA_BATCH_GRACE_S = 1
        asked = [*lines(4, ignore_eos=True, max_tokens=1500), line("last", max_tokens=1)]
        await submit(asked)
        stop = [False]
        running = asyncio.create_task(runner.run_waiting(lambda: stop[0]))
        await until(lambda: _begun(4))
        stop[0] = True
        await asyncio.wait_for(running, 20)
        await until(_all_settled)
        assert await read(_states)(acme.tenant) == _none | {"cancelled": 4}
        row = await read(Batch.across_tenants.get)()
        assert (row.status, row.lease_owner, row.completed, row.failed) == ("in_progress", "", 0, 0)
        assert await read(holds)(acme.tenant) == 0

    async def test_a_line_that_waits_for_a_limit_holds_up_no_stop(
        self, client: AsyncOpenAI, submit: Any, acme: Any
    ) -> None:
        await read(TenantLimits.across_tenants.create)(
            tenant=acme.tenant, concurrent_generations=2, requests_per_minute=3
        )
        batch = await submit(lines(20, max_tokens=5))
        stop = [False]
        running = asyncio.create_task(runner.run_waiting(lambda: stop[0]))
        await until(lambda: _written(3))
        stop[0] = True
        await asyncio.wait_for(running, 20)
        assert (await client.batches.retrieve(batch.id)).request_counts.completed == 3
        assert await read(_states)(acme.tenant) == _none | {"complete": 3}

    async def test_a_runner_that_lost_its_lease_writes_nothing_any_more(
        self, client: AsyncOpenAI, submit: Any, acme: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.PAGODA_BATCH_LINES_IN_FLIGHT = 4
        look, renew = threading.Event(), lease.renew
        look.set()

        def renewed(*args: Any) -> Any:
            assert look.wait(120)
            return renew(*args)

        monkeypatch.setattr(lease, "renew", renewed)
        asked = lines(120, max_tokens=12)
        batch = await submit(asked)
        running = asyncio.create_task(runner.run_waiting(lambda: False))
        await until(lambda: _written(1))
        look.clear()  # it hears of its loss when an answer has come after that
        later = timezone.now() + timedelta(hours=1)
        await read(Batch.across_tenants.update)(lease_owner="another", lease_expires=later)
        before = await read(BatchLine.across_tenants.count)()
        settled = (await read(_states)(acme.tenant))["complete"]

        async def has_settled_more() -> bool:
            return (await read(_states)(acme.tenant))["complete"] > settled

        await until(has_settled_more)
        look.set()
        await running
        assert await read(BatchLine.across_tenants.count)() == before
        assert (await client.batches.retrieve(batch.id)).request_counts.completed == before
        await read(Batch.across_tenants.update)(lease_expires=timezone.now())
        batch = await carried_out(client, batch)
        output, errors = await results(client, batch)
        assert (batch.status, len(output), errors) == ("completed", 120, [])
        assert each_once(asked, output)

    async def test_a_key_that_is_revoked_ends_its_batches(self, client: AsyncOpenAI, submit: Any, key: str) -> None:
        other = await submit(lines(4, ignore_eos=True))
        running = asyncio.create_task(runner.run_waiting(lambda: False))
        await until(lambda: _begun(1))
        await read(ApiKey.across_tenants.filter(prefix=key[4:12]).update)(revoked=timezone.now())
        await running
        row = await read(Batch.across_tenants.get)(input_file=_id(other.input_file_id))
        assert row.status == "cancelled"
        assert [error["code"] for error in row.errors] == ["invalid_api_key"]


async def _written(count: int) -> bool:
    return await read(BatchLine.across_tenants.count)() >= count


async def _begun(count: int) -> bool:
    return await read(Generation.across_tenants.filter(purpose="batch").count)() >= count


async def _all_settled() -> bool:
    """What a runner leaves under way when it ends is settled by others within seconds."""
    return not await read(Generation.across_tenants.filter(finished__isnull=True).exists)()


_none = dict.fromkeys(Generation.State.values, 0)


def _states(tenant: Any) -> dict[str, int]:
    rows = Generation.across_tenants.filter(tenant=tenant)
    return {state: rows.filter(state=state).count() for state in Generation.State.values}


def _id(file_id: str) -> str:
    return file_id.removeprefix("file-")


async def test_limits_are_waited_for(client: AsyncOpenAI, submit: Any, acme: Any) -> None:
    await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, concurrent_generations=2)
    asked = lines(12)
    batch = await carried_out(client, await submit(asked))
    output, errors = await results(client, batch)
    assert (len(output), errors) == (12, [])


async def test_a_budget_that_is_used_up_fails_the_rest_and_is_not_overspent(
    client: AsyncOpenAI, submit: Any, acme: Any
) -> None:
    await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, monthly_tokens=400)
    asked = lines(20, max_tokens=50)
    batch = await carried_out(client, await submit(asked))
    output, errors = await results(client, batch)
    assert each_once(asked, output, errors)
    assert output
    assert {each["response"]["body"]["error"]["code"] for each in errors} == {"insufficient_quota"}
    sums = await read(billed)(acme.tenant)
    assert sums["prompt"] + sums["output"] <= 400


async def test_a_final_batch_cannot_be_cancelled(client: AsyncOpenAI, submit: Any) -> None:
    batch = await carried_out(client, await submit(lines(1)))
    with pytest.raises(openai.BadRequestError):
        await client.batches.cancel(batch.id)


async def test_batches_are_listed_in_pages(client: AsyncOpenAI, submit: Any) -> None:
    made = [(await submit(lines(1))).id for _ in range(5)]
    first = await client.batches.list(limit=2)
    assert [each.id for each in first.data] == made[:2:-1]
    assert first.has_more
    assert [each.id async for each in client.batches.list(limit=2)] == made[::-1]
    with pytest.raises(openai.BadRequestError):
        await client.batches.list(after="batch_0")


async def test_what_a_batch_must_say(client: AsyncOpenAI, submit: Any) -> None:
    file = await client.files.create(file=("a.jsonl", b"{}"), purpose="batch")
    good: dict[str, Any] = {
        "input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"
    }  # fmt: skip
    for field, value in (
        ("endpoint", "/v1/embeddings"),
        ("completion_window", "1h"),
        ("metadata", {"a" * 65: "b"}),
        ("metadata", {str(number): "b" for number in range(17)}),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            await client.batches.create(**good | {field: value})
        assert str(error.value.param).startswith(field)
    with pytest.raises(openai.NotFoundError) as missing:
        await client.batches.create(**good | {"input_file_id": "file-0"})
    assert missing.value.param == "input_file_id"
    batch = await carried_out(client, await submit(lines(1)))
    with pytest.raises(openai.BadRequestError):
        await client.batches.create(**good | {"input_file_id": batch.output_file_id})


async def test_the_rival_sees_nothing_of_it(client: AsyncOpenAI, rival_client: AsyncOpenAI, submit: Any) -> None:
    batch = await carried_out(client, await submit(lines(2)))
    assert (await rival_client.batches.list()).data == []
    assert (await rival_client.files.list()).data == []
    for attempt in (
        rival_client.batches.retrieve(batch.id),
        rival_client.batches.cancel(batch.id),
        rival_client.files.retrieve(batch.output_file_id),
        rival_client.files.content(batch.output_file_id),
        rival_client.files.delete(batch.output_file_id),
        rival_client.batches.create(
            input_file_id=batch.input_file_id, endpoint="/v1/chat/completions", completion_window="24h"
        ),
    ):
        with pytest.raises(openai.NotFoundError):
            await attempt
    assert len((await client.files.list()).data) == 2


async def test_batches_of_two_tenants_run_side_by_side(
    client: AsyncOpenAI, rival_client: AsyncOpenAI, submit: Any, acme: Any, rival: Any
) -> None:
    ours = await submit(lines(5))
    file = await rival_client.files.create(file=("x.jsonl", jsonl(lines(4))), purpose="batch")
    theirs = await rival_client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert (await carried_out(client, ours)).status == "completed"
    theirs = await rival_client.batches.retrieve(theirs.id)
    assert theirs.request_counts.completed == 4

    def records(party: Any) -> int:
        return UsageRecord.across_tenants.filter(tenant=party.tenant).count()

    assert (await read(records)(acme), await read(records)(rival)) == (5, 4)


async def test_a_batch_needs_the_scope(client: AsyncOpenAI, site: str, make_key: Any, acme: Any) -> None:
    _, text = await make_key(acme, scopes=["chat"])
    async with AsyncOpenAI(base_url=f"{site}/v1", api_key=text, max_retries=0) as chatting:
        with pytest.raises(openai.PermissionDeniedError):
            await chatting.batches.list()
        with pytest.raises(openai.PermissionDeniedError):
            await chatting.files.list()
