"""Who records a generation, and what happens to it when that process is no more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.db import OperationalError, connection
from django.utils import timezone
from engine_at_hand import echo, long_question
from following import follow, stored
from web_process import until_ready

from pagoda.engines import lifespan
from pagoda.generations import journal, lease, recorder, recording, stream
from pagoda.generations.models import Generation
from pagoda.generations.recorder import Recorder
from pagoda.generations.signals import generation_settled
from pagoda.usage.models import UsageRecord
from pagoda_inference.client import EngineClient
from pagoda_inference.model.echo import EchoTokenizer

Create = Callable[..., Awaitable[Generation]]
MakeRecorder = Callable[[], Awaitable[Recorder]]


@pytest.fixture
def step_ms() -> float:
    return 5


async def usage_records(generation: Generation) -> list[UsageRecord]:
    def read() -> list[UsageRecord]:
        return list(UsageRecord.across_tenants.filter(generation_id=generation.pk))

    return await database_sync_to_async(read)()


async def die(victim: Recorder) -> None:
    """As with kill -9: nothing is written any more, and no lease is given up."""
    tasks = [*victim._loops, *victim._tasks.values()]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    victim._loops, victim._recordings = [], {}


async def expire_lease(generation: Generation) -> None:
    past = timezone.now() - timedelta(seconds=1)
    await database_sync_to_async(Generation.across_tenants.filter(pk=generation.pk).update)(lease_expires=past)


async def heard(generation: Generation, seq: int) -> None:
    """Until the engine has written that much."""
    events = stream.follow(generation.tenant_id, generation.pk)
    async for event in events:
        if event["seq"] >= seq:
            break
    await events.aclose()


async def idle(address: str) -> None:
    """Until the engine has no answer under way."""
    async with EngineClient(address) as client:
        await client.connect()
        async for report in client.watch(0.05):
            if not any(account.running or account.waiting for account in report.accounts):
                return


async def test_a_recorded_generation_settles_with_text_tokens_and_usage(create: Create, acme: Any) -> None:
    generation = await create(acme, "Hello", owner=recorder.current().owner)
    recorder.current().start(generation)
    text, events = await follow(generation)
    row = await stored(generation)
    assert row.text == text == echo("Hello")[1]
    assert (row.state, row.finish_reason, row.seq) == ("complete", "stop", events[-1]["seq"])
    assert row.prompt_tokens == echo("Hello")[0]
    assert row.finished is not None
    assert (row.lease_owner, row.lease_expires) == ("", None)
    assert "messages" not in row.request
    assert [record.output_tokens for record in await usage_records(generation)] == [row.output_tokens]


@pytest.mark.parametrize("step_ms", [25.0])
async def test_a_dead_recorder_is_replaced_and_nothing_is_lost_or_doubled(
    create: Create, make_recorder: MakeRecorder, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "SNAPSHOT_S", 0.1)
    first = await make_recorder()
    await first.open()
    question = long_question()
    generation = await create(acme, question, owner=first.owner)
    first.start(generation)
    follower = asyncio.create_task(follow(generation))
    await heard(generation, 60)
    await die(first)
    row = await stored(generation)
    assert row.state == "streaming"
    assert row.seq > 0
    assert row.text == EchoTokenizer().decode(row.token_ids).rstrip("\ufffd")
    assert row.lease_owner == first.owner
    await expire_lease(generation)
    text, events = await follower
    row = await stored(generation)
    assert text == echo(question)[1] == row.text == EchoTokenizer().decode(row.token_ids)
    assert row.output_tokens == len(row.token_ids)
    assert events[-1]["state"] == "complete"
    assert len(await usage_records(generation)) == 1


async def test_a_recorder_that_closes_hands_over_at_once(
    create: Create, make_recorder: MakeRecorder, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await make_recorder()
    await first.open()
    question = long_question()
    generation = await create(acme, question, owner=first.owner)
    first.start(generation)
    await heard(generation, 30)
    while generation.pk in first and first.newest_seq(generation) < 29:  # noqa: ASYNC110  (it listens by itself)
        await asyncio.sleep(0.001)
    await first.close()
    row = await stored(generation)
    assert row.seq >= 29
    assert echo(question)[1].startswith(row.text)
    assert row.lease_owner in ("", recorder.current().owner)
    text, _ = await follow(generation)
    assert text == echo(question)[1] == (await stored(generation)).text


async def test_a_server_that_restarts_takes_up_what_still_runs_in_the_engine(
    create: Create, acme: Any, web: str
) -> None:
    questions = [long_question(number=number) for number in range(3)]
    generations = [await create(acme, question, owner=recorder.current().owner) for question in questions]
    for generation in generations:
        recorder.current().start(generation)
    await heard(generations[-1], 20)
    await lifespan.stop()
    await lifespan.start()
    await until_ready(web)
    texts = [(await follow(generation))[0] for generation in generations]
    assert texts == [echo(question)[1] for question in questions]
    assert [(await stored(generation)).state for generation in generations] == ["complete"] * 3
    assert [len(await usage_records(generation)) for generation in generations] == [1] * 3


async def test_a_generation_that_ended_while_nobody_recorded_it_is_settled_afterwards(
    create: Create, acme: Any, web: str
) -> None:
    question = long_question()
    generation = await create(acme, question, owner=recorder.current().owner)
    recorder.current().start(generation)
    await heard(generation, 5)
    await lifespan.stop()
    await idle(web)
    await lifespan.start()
    await until_ready(web)
    text, _ = await follow(generation)
    assert text == echo(question)[1]


async def test_a_generation_whose_process_died_before_it_began_is_begun(
    create: Create, make_recorder: MakeRecorder, acme: Any
) -> None:
    gone = await make_recorder()
    generation = await create(acme, "Hello", owner=gone.owner)
    await expire_lease(generation)
    text, _ = await follow(generation)
    assert text == echo("Hello")[1]


@pytest.mark.parametrize("step_ms", [25.0])
async def test_a_recorder_that_lost_its_lease_writes_nothing_more(
    create: Create, make_recorder: MakeRecorder, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "SNAPSHOT_S", 0.05)
    await recorder.current().close()  # leaves the sweeping to the test
    slow, quick = await make_recorder(), await make_recorder()
    question = long_question()
    generation = await create(acme, question, owner=slow.owner)
    slow.start(generation)  # its leases are not renewed: it never opened
    await heard(generation, 10)
    await expire_lease(generation)
    [taken] = await database_sync_to_async(lease.claim_abandoned)(quick.owner)
    await quick.open()
    quick.start(taken)
    await slow.open()
    text, _ = await follow(generation)
    assert text == echo(question)[1]
    assert len(await usage_records(generation)) == 1
    await slow.wait_settled(generation.pk, 0.3)
    assert generation.pk not in slow


async def test_two_sweeps_at_once_never_take_the_same_generation(create: Create, acme: Any) -> None:
    await recorder.current().close()  # leaves the sweeping to the test
    ids = {(await create(acme, f"Hello {number}")).pk for number in range(12)}
    taken: dict[str, list[Any]] = {}
    barrier = threading.Barrier(3)

    def sweep(owner: str) -> None:
        barrier.wait()
        taken[owner] = [generation.pk for generation in lease.claim_abandoned(owner)]
        connection.close()

    threads = [threading.Thread(target=sweep, args=(f"owner {number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    claimed = [each for batch in taken.values() for each in batch]
    assert len(claimed) == len(set(claimed)) == 12
    assert set(claimed) == ids


async def test_a_settlement_that_fails_is_tried_again(
    create: Create, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([OperationalError("database is locked"), RuntimeError("a listener is broken")])

    def listener(generation: Generation, **_: Any) -> None:
        for failure in failures:
            raise failure

    generation_settled.connect(listener)
    try:
        generation = await create(acme, "Hello", owner=recorder.current().owner)
        recorder.current().start(generation)
        text, events = await follow(generation)
    finally:
        generation_settled.disconnect(listener)
    assert (text, events[-1]["state"]) == (echo("Hello")[1], "complete")
    assert len(await usage_records(generation)) == 1


async def test_a_rolled_back_settlement_leaves_no_usage_behind(create: Create, acme: Any) -> None:
    await recorder.current().close()
    generation = await create(acme, "Hello", owner="me")
    snapshot = journal.Snapshot(generation.pk, 5, "text", "instance", 7, 0, 3)

    def listener(generation: Generation, **_: Any) -> None:
        raise RuntimeError("a listener is broken")

    generation_settled.connect(listener)
    try:
        with pytest.raises(RuntimeError):
            await database_sync_to_async(journal.settle)(snapshot, journal.Outcome("complete", "stop"), "me")
    finally:
        generation_settled.disconnect(listener)
    assert await usage_records(generation) == []
    assert (await stored(generation)).state == "queued"


async def test_only_the_owner_of_the_lease_settles(create: Create, acme: Any) -> None:
    await recorder.current().close()
    generation = await create(acme, "Hello", owner="me")
    snapshot = journal.Snapshot(generation.pk, 5, "text", "instance", 7, 0, 3)
    settle = database_sync_to_async(journal.settle)
    assert await settle(snapshot, journal.Outcome("complete", "stop"), "somebody else") is False
    assert await settle(snapshot, journal.Outcome("complete", "stop"), "me") is True
    assert await settle(snapshot, journal.Outcome("failed", "error"), "me") is False
    assert (await stored(generation)).state == "complete"
    assert len(await usage_records(generation)) == 1


async def test_a_wish_to_stop_outlives_the_process_it_was_made_in(
    create: Create, make_recorder: MakeRecorder, acme: Any
) -> None:
    gone = await make_recorder()
    generation = await create(acme, long_question(), owner=gone.owner)
    await database_sync_to_async(Generation.across_tenants.filter(pk=generation.pk).update)(cancel_requested=True)
    await expire_lease(generation)
    _, events = await follow(generation)
    assert events[-1]["state"] == "cancelled"


async def test_an_engine_that_is_no_longer_ours_interrupts(
    create: Create, acme: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "GRACE_S", 0.3)
    generation = await create(acme, "Hello", owner=recorder.current().owner)
    settings.PAGODA_ENGINES = ["unix:/nowhere.sock"]
    recorder.current().start(generation)
    _, events = await follow(generation)
    assert events[-1]["state"] == "interrupted"
