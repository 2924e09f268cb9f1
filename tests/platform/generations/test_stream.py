"""Following a generation, from any process and any moment of its life."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from engine_at_hand import echo, long_question
from following import follow, stored

from pagoda.generations import recorder, stream
from pagoda.generations.models import Generation
from pagoda.generations.recorder import Recorder
from pagoda.generations.recording import storable

Create = Callable[..., Awaitable[Generation]]
MakeRecorder = Callable[[], Awaitable[Recorder]]


@pytest.fixture
def step_ms() -> float:
    return 5


async def test_followers_of_all_moments_get_the_same_text_while_events_are_being_forgotten(
    create: Create, make_recorder: MakeRecorder, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "SNAPSHOT_S", 0.01)
    elsewhere = await make_recorder()
    await elsewhere.open()
    question = long_question()
    generation = await create(acme, question, owner=elsewhere.owner)
    elsewhere.start(generation)
    chance = random.Random(7)

    async def follow_later() -> str:
        await asyncio.sleep(chance.random())
        return (await follow(generation))[0]

    texts = await asyncio.gather(*(follow_later() for _ in range(12)))
    assert set(texts) == {echo(question)[1]}


async def test_finished_comes_when_the_result_is_stored_also_where_another_process_records(
    create: Create, make_recorder: MakeRecorder, acme: Any
) -> None:
    elsewhere = await make_recorder()
    await elsewhere.open()
    generation = await create(acme, "Hello", owner=elsewhere.owner)
    elsewhere.start(generation)
    async for event in stream.follow(generation.tenant_id, generation.pk):
        if event["type"] == "generation.finished":
            assert (await stored(generation)).state == "complete"
    assert event["usage"]["prompt_tokens"] == echo("Hello")[0]


@pytest.mark.parametrize("step_ms", [25.0])
async def test_a_generation_recorded_elsewhere_can_be_stopped_here(
    create: Create, make_recorder: MakeRecorder, acme: Any
) -> None:
    elsewhere = await make_recorder()
    await elsewhere.open()
    generation = await create(acme, long_question(), owner=elsewhere.owner)
    elsewhere.start(generation)
    seen = 0
    event: dict[str, Any] = {}
    async for event in stream.follow(generation.tenant_id, generation.pk):  # noqa: B007  (the last one is wanted)
        seen += 1
        if seen == 10:
            await stream.stop(generation.tenant_id, generation.pk)
    assert (event["type"], event["state"]) == ("generation.finished", "cancelled")


async def test_a_rival_can_neither_follow_nor_stop(create: Create, acme: Any, rival: Any) -> None:
    question = long_question()
    generation = await create(acme, question, owner=recorder.current().owner)
    recorder.current().start(generation)
    for tenant_id, generation_id in ((rival.tenant.pk, generation.pk), (acme.tenant.pk, uuid.uuid4())):
        with pytest.raises(stream.GenerationUnknown):
            await anext(stream.follow(tenant_id, generation_id))
        with pytest.raises(stream.GenerationUnknown):
            await stream.stop(tenant_id, generation_id)
        with pytest.raises(stream.GenerationUnknown):
            await stream.wait_settled(tenant_id, generation_id)
    text, events = await follow(generation)
    assert (text, events[-1]["state"]) == (echo(question)[1], "complete")


async def test_a_follower_beyond_the_newest_is_corrected_by_a_snapshot(create: Create, acme: Any) -> None:
    question = long_question()
    generation = await create(acme, question, owner=recorder.current().owner)
    recorder.current().start(generation)
    for _ in range(2):  # while it is written, and when it has ended
        text, events = await follow(generation, after_seq=1_000_000)
        assert text == echo(question)[1]
        assert events[0]["type"] == "generation.snapshot"
    assert [event["type"] for event in events] == ["generation.snapshot", "generation.finished"]


async def test_a_follower_that_is_ahead_of_the_database_gets_no_snapshot(create: Create, acme: Any) -> None:
    question = long_question()
    generation = await create(acme, question, owner=recorder.current().owner)
    recorder.current().start(generation)
    events = stream.follow(generation.tenant_id, generation.pk)
    seq = 0
    while seq < 20:
        seq = (await anext(events))["seq"]
    await events.aclose()
    assert (await stored(generation)).seq < seq
    again = stream.follow(generation.tenant_id, generation.pk, seq)
    assert (await anext(again))["type"] == "generation.delta"
    await again.aclose()


def test_a_nul_is_shown_and_stored_as_a_replacement_character() -> None:
    assert storable("a\x00b") == "a�b"
    assert storable("plain") == "plain"
