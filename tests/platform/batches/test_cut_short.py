"""A line whose reader goes away: its result is written where everything of its answer had come, and only there."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from asking import read, until
from lines import line, text_line

from pagoda.batches import line_run
from pagoda.batches.input_file import Line
from pagoda.batches.line_run import LineRun
from pagoda.batches.models import Batch, BatchLine
from pagoda.batches.results import Expected, Place
from pagoda.generations import journal
from pagoda.generations.calls import Call
from pagoda.generations.models import Generation
from pagoda.tenants.keys import authenticate_key
from pagoda.usage.models import UsageRecord

OWNER = "the test"
LONG = {"max_tokens": 60, "ignore_eos": True}
LINES = {"chat": line("cut", **LONG), "completions": text_line("cut", ["one", "two"], **LONG)}


@pytest.fixture
def step_ms() -> float:
    return 5


@pytest.fixture(params=LINES)
async def place(request: Any, submit: Any) -> Place:
    """A line of a batch that the test carries out."""
    asked = LINES[request.param]
    await submit([asked], endpoint=asked["url"])
    await read(Batch.across_tenants.update)(lease_owner=OWNER)
    batch = await read(Batch.across_tenants.select_related("tenant").get)()
    return Place(batch, OWNER, Line(1, asked["custom_id"], asked["body"]))


@pytest.fixture
async def run(place: Place, key: str, site: str) -> LineRun:
    row = await read(authenticate_key)(key)
    assert row is not None
    return await line_run.begin(await line_run.prepare(place.batch.endpoint, place.line.body, row))


async def carry_out(place: Place, run: LineRun) -> None:
    async with run:
        with Expected(place, run):
            await run.collect()


async def are_settled() -> bool:
    states = await read(lambda: list(Generation.across_tenants.values_list("state", flat=True)))()
    return bool(states) and Generation.State.STREAMING not in states


async def test_an_answer_that_is_read_to_its_end_is_written(place: Place, run: LineRun) -> None:
    await carry_out(place, run)
    (written,) = await read(lambda: list(BatchLine.across_tenants.all()))()
    assert run.written
    assert json.loads(written.text)["response"]["body"]["usage"]["completion_tokens"] == 60 * len(run.calls)


async def test_one_that_comes_to_its_end_behind_its_readers_back_is_not(
    place: Place, run: LineRun, acme: Any, rival: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine hears too late that it should stop: the answer is settled as complete, of which half was read."""

    async def too_late(call: Call) -> None:
        return None

    monkeypatch.setattr(Call, "cancel", too_late)
    carrying = asyncio.create_task(carry_out(place, run))
    while not any(piece.text for piece in run._pieces):  # noqa: ASYNC110  (nobody tells of pieces)
        await asyncio.sleep(0.001)
    carrying.cancel()
    await asyncio.wait([carrying])
    await until(are_settled)
    generations = await read(lambda: list(Generation.across_tenants.all()))()
    assert {(row.state, row.output_tokens) for row in generations} == {("complete", 60)}
    assert await read(BatchLine.across_tenants.count)() == 0
    assert not run.written
    batch = await read(Batch.across_tenants.get)()
    assert (batch.completed, batch.failed) == (0, 0)
    assert await read(UsageRecord.across_tenants.filter(tenant=acme.tenant).count)() == len(run.calls)
    assert await read(UsageRecord.across_tenants.filter(tenant=rival.tenant).count)() == 0


async def test_one_that_had_come_whole_is_written_though_its_reader_is_gone(
    place: Place, run: LineRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader goes away while it is settled."""
    settling, go_on = threading.Semaphore(0), threading.Event()
    settle = journal.settle

    def slowly(*args: Any) -> bool:
        settling.release()
        assert go_on.wait(60)
        return settle(*args)

    monkeypatch.setattr(journal, "settle", slowly)
    carrying = asyncio.create_task(carry_out(place, run))
    for _ in run.calls:
        assert await asyncio.to_thread(settling.acquire, timeout=60)
    carrying.cancel()
    await asyncio.wait([carrying])
    go_on.set()
    await until(are_settled)
    (written,) = await read(lambda: list(BatchLine.across_tenants.all()))()
    assert written.ok
    assert json.loads(written.text)["response"]["body"]["usage"]["completion_tokens"] == 60 * len(run.calls)
