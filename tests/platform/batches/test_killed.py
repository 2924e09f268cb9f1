"""A worker that is killed loses nothing and doubles nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from typing import Any

import pytest
from asking import holds, read, until
from django.utils import timezone
from lines import billed, each_once, lines, results, told
from openai import AsyncOpenAI
from worker_process import whole_worker, worker_process

from pagoda.batches.models import Batch, BatchLine
from pagoda.engines import connections
from pagoda.generations.models import Generation
from pagoda.usage.models import TenantLimits, UsageRecord

IN_FLIGHT = 8


@pytest.fixture
def step_ms() -> float:
    return 1


def used(tenant: Any) -> Counter[str]:
    """Tokens of all settled generations of batches, as ``billed`` counts them."""
    sums: Counter[str] = Counter()
    for row in Generation.across_tenants.filter(tenant=tenant, purpose="batch", finished__isnull=False):
        if row.prompt_tokens or row.output_tokens:
            sums += Counter(records=1, prompt=row.prompt_tokens, output=row.output_tokens)
    return sums


def sizes_billed(tenant: Any) -> Counter[tuple[int, int]]:
    """Prompt and output tokens of every record of the tenant's batches."""
    records = UsageRecord.across_tenants.filter(tenant=tenant, purpose="batch")
    return Counter(records.values_list("prompt_tokens", "output_tokens"))


def size_of(line: dict[str, Any]) -> tuple[int, int]:
    """The same of a line of an output file."""
    usage = line["response"]["body"]["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def forget_lease() -> None:
    """The time of a lease passes."""
    Batch.across_tenants.filter(finished__isnull=True).update(lease_expires=timezone.now())


def done() -> int:
    """Lines with a result; those of a batch that has ended, too."""
    batch = Batch.across_tenants.get()
    return BatchLine.across_tenants.count() if batch.finished is None else batch.total


def states() -> Counter[str]:
    """How many generations of batches there are in each state."""
    return Counter(Generation.across_tenants.filter(purpose="batch").values_list("state", flat=True))


async def nothing_in_progress() -> bool:
    return not await read(Generation.across_tenants.filter(finished__isnull=True).count)()


async def killed_at(line: int) -> bool:
    """A worker begins, and is killed once so many lines have a result, or a moment later. False where it had ended."""
    async with worker_process(PAGODA_BATCH_LINES_IN_FLIGHT=str(IN_FLIGHT)) as process:

        async def far_enough() -> bool:
            return process.returncode is not None or await read(done)() >= line

        await until(far_enough, within_s=300)
        await asyncio.sleep(random.uniform(0, 0.05))
        alive = process.returncode is None
    await read(forget_lease)()
    return alive


async def ended(client: AsyncOpenAI, batch: Any) -> Any:
    """The batch, once workers that nobody kills have carried it out and what was killed is settled."""
    while (batch := await client.batches.retrieve(batch.id)).status != "completed":
        async with worker_process() as process:
            await process.wait()
        await read(forget_lease)()
    await until(nothing_in_progress, within_s=60)
    return batch


async def check(client: AsyncOpenAI, batch: Any, asked: list[dict[str, Any]], tenant: Any, kills: int) -> None:
    """Every line once, and every token once."""
    assert batch.request_counts.model_dump() == {"total": len(asked), "completed": len(asked), "failed": 0}
    output, errors = await results(client, batch)
    assert (len(output), errors) == (len(asked), [])
    assert each_once(asked, output)
    assert [each["custom_id"] for each in output] == [each["custom_id"] for each in asked]
    assert await read(BatchLine.across_tenants.count)() == 0
    assert await read(holds)(tenant) == 0
    ledger, runs, answers = await read(billed)(tenant), await read(used)(tenant), told(output)
    assert ledger == runs
    assert all(ledger[kind] >= answers[kind] for kind in answers)
    # What is billed besides the answers was in flight at a kill: asked again, and not written.
    assert ledger["records"] - len(asked) <= kills * IN_FLIGHT
    records, written = await read(sizes_billed)(tenant), Counter(map(size_of, output))
    assert not written - records
    assert (records - written).total() == ledger["records"] - len(asked)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_twenty_kills_lose_no_line_and_double_none(client: AsyncOpenAI, submit: Any, acme: Any) -> None:
    await read(TenantLimits.across_tenants.create)(tenant=acme.tenant, monthly_tokens=10_000_000)
    asked = lines(1000)
    batch = await submit(asked)
    for kill in range(20):
        assert await killed_at(random.randint(kill * 45, kill * 45 + 44))
        counts = (await client.batches.retrieve(batch.id)).request_counts
        assert counts.completed + counts.failed == await read(done)()
    batch = await ended(client, batch)
    await check(client, batch, asked, acme.tenant, 20)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_worker_killed_while_it_writes_the_files_has_its_work_done_again(
    client: AsyncOpenAI, submit: Any, acme: Any, home: Any
) -> None:
    asked = lines(60)
    batch = await submit(asked)
    await killed_at(len(asked))
    batch = await ended(client, batch)
    await check(client, batch, asked, acme.tenant, 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("step_ms", [5.0])
async def test_what_was_in_flight_at_a_kill_is_settled_once(
    client: AsyncOpenAI, submit: Any, engine: str, acme: Any
) -> None:
    asked = lines(30, ignore_eos=True, max_tokens=300)
    batch = await submit(asked)

    async def are_running() -> bool:
        report = await anext(aiter((await connections.get_client(engine)).watch(0)))
        return sum(account.running for account in report.accounts) == IN_FLIGHT

    async with worker_process(PAGODA_BATCH_LINES_IN_FLIGHT=str(IN_FLIGHT)):
        await until(are_running, within_s=120)
    await until(nothing_in_progress, within_s=60)
    await read(forget_lease)()
    batch = await ended(client, batch)
    found = await read(states)()
    assert found["complete"] >= 30
    assert found["cancelled"] <= IN_FLIGHT
    assert await read(UsageRecord.across_tenants.count)() == found.total()
    await check(client, batch, asked, acme.tenant, 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("told", ["the worker", "all its processes"])
async def test_a_worker_that_is_asked_to_end_asks_nothing_twice_and_leaves_the_rest_to_the_next(
    client: AsyncOpenAI, submit: Any, acme: Any, told: str
) -> None:
    asked = lines(400, ignore_eos=True, max_tokens=100)
    batch = await submit(asked)
    async with whole_worker(PAGODA_BATCH_LINES_IN_FLIGHT=str(IN_FLIGHT)) as worker:
        await until(lambda: read(BatchLine.across_tenants.count)(), within_s=180)
        if told == "the worker":
            worker.terminate()
        else:
            os.killpg(worker.pid, signal.SIGTERM)
        await asyncio.wait_for(worker.wait(), 120)
    row = await read(Batch.across_tenants.get)()
    assert (row.status, row.lease_owner) == ("in_progress", "")
    assert row.completed == await read(BatchLine.across_tenants.count)() < len(asked)
    assert await read(states)() == {"complete": row.completed}
    batch = await ended(client, batch)
    assert await read(states)() == {"complete": len(asked)}
    await check(client, batch, asked, acme.tenant, 0)
