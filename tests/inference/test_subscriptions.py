"""Attaching to a generation, acknowledging it, leaving it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from pagoda_inference.client import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import Finished, Frame, decoder, encode
from tests.inference.running_engine import Tenant, raw_stream, read


async def refusal(subscription) -> str:
    """The code that a subscription is refused with."""
    with pytest.raises(EngineRefused) as refused:
        await read(subscription)
    return refused.value.error.code


async def test_attach_gives_the_events_after_a_seq(acme, rival):
    whole = await acme.answer(id="g", max_tokens=20, ignore_eos=True)
    later = await read(acme.attach("g", after_seq=5))
    assert later.events == whole.events[5:]


async def test_attach_in_the_middle_of_an_answer_loses_and_doubles_nothing(start_engine):
    engine = await start_engine(step_ms=2)
    acme = Tenant("acme", await engine.client())
    first = acme.start(id="g", max_tokens=60, ignore_eos=True)
    beginning = await read(first, 20)
    elsewhere = Tenant("acme", await engine.client())
    rest, other_rest = await asyncio.gather(read(first), read(elsewhere.attach("g", after_seq=20)))
    assert rest == other_rest
    assert [event.seq for event in beginning.events + rest.events] == list(range(1, 63))


async def test_a_recorder_and_two_tabs_share_a_connection(acme):
    recorder = acme.start(id="g", max_tokens=40, ignore_eos=True)
    tabs = acme.attach("g"), acme.attach("g", after_seq=0)
    answers = await asyncio.gather(read(recorder), *map(read, tabs))
    assert answers[0] == answers[1] == answers[2]


async def test_what_is_acknowledged_is_forgotten(acme):
    whole = await acme.answer(id="g", max_tokens=10, ignore_eos=True)
    await acme.client.acknowledge("g", "acme", 4)
    assert await refusal(acme.attach("g", after_seq=3)) == "seq_forgotten"
    assert (await read(acme.attach("g", after_seq=4))).events == whole.events[4:]


async def test_after_the_last_acknowledgement_a_generation_is_unknown(acme):
    whole = await acme.answer(id="g", max_tokens=10)
    await acme.client.acknowledge("g", "acme", whole.finished.seq)
    assert await refusal(acme.attach("g", after_seq=1)) == "not_found"


async def test_a_rivals_generation_is_answered_like_an_unknown_one(acme, rival):
    await acme.answer(id="g", max_tokens=10)
    with pytest.raises(EngineRefused) as of_rival:
        await read(rival.attach("g"))
    with pytest.raises(EngineRefused) as of_nobody:
        await read(rival.attach("never"))
    assert of_rival.value.error == of_nobody.value.error
    assert of_rival.value.error.code == "not_found"


async def test_a_rival_can_neither_cancel_nor_acknowledge(start_engine):
    engine = await start_engine(step_ms=1)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    running = acme.start(id="g", max_tokens=40, ignore_eos=True)
    await read(running, 3)
    await rival.client.cancel("g", "rival")
    await rival.client.acknowledge("g", "rival", 2)
    assert await refusal(rival.attach("g")) == "not_found"  # both were carried out by now
    assert (await read(running)).finished.reason == "length"
    assert (await read(acme.attach("g"))).seqs == list(range(1, 43))


@pytest.mark.parametrize(("after_seq", "code"), [(-1, "invalid_request"), (99, "invalid_request"), (12, "not_found")])
async def test_a_place_where_nothing_follows_is_refused_rather_than_waited_for(acme, after_seq, code):
    assert (await acme.answer(id="g", max_tokens=10, ignore_eos=True)).finished.seq == 12
    assert await refusal(acme.attach("g", after_seq=after_seq)) == code


async def test_a_closed_subscription_ends_and_the_generation_goes_on(start_engine):
    engine = await start_engine(step_ms=1)
    acme = Tenant("acme", await engine.client())
    tab = acme.start(id="g", max_tokens=30, ignore_eos=True)
    await read(tab, 3)
    tab.close()
    assert (await read(tab)).events == []
    assert (await read(acme.attach("g"))).finished.reason == "length"


async def test_a_reader_that_stands_still_holds_up_nobody_and_catches_up(start_engine):
    engine = await start_engine(pool_tokens=1 << 16, log_bytes=1 << 28, debug=False)
    rival = Tenant("rival", await engine.client())
    async with raw_stream(engine.address) as stuck:
        for number in range(4):
            command = Tenant("acme", rival.client).command(id=f"g{number}", max_tokens=2000, ignore_eos=True)
            await stuck.write(encode(replace(command, subscription=number)))
        answer = await asyncio.wait_for(rival.answer(max_tokens=50, ignore_eos=True), 60)
        assert answer.finished.reason == "length"
        async for report in rival.client.watch(0.05):
            if not any(account.running for account in report.accounts):
                break
        seqs: dict[int, list[int]] = {number: [] for number in range(4)}
        frames = 0
        while min(map(len, seqs.values())) < 2002:
            frame = decoder(Frame)(await asyncio.wait_for(stuck.read(), 60))
            frames += 1
            for delivery in frame.deliveries:
                seqs[delivery.subscription] += [reply.seq for reply in delivery.replies]
    assert all(found == list(range(1, 2003)) for found in seqs.values())
    assert frames < 1500, "what a slow reader missed comes in few frames"


async def test_events_that_exceed_an_accounts_bytes_are_dropped_oldest_first(start_engine):
    engine = await start_engine(log_bytes=20_000)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    await rival.answer(id="theirs", max_tokens=10)
    for number in range(6):
        await acme.answer(id=f"g{number}", max_tokens=40, ignore_eos=True)
    assert await refusal(acme.attach("g0")) == "not_found"
    assert (await read(acme.attach("g5"))).finished.reason == "length"
    assert (await read(rival.attach("theirs"))).finished.seq == 12


async def test_an_account_whose_running_logs_are_full_gets_no_further_generation(start_engine):
    engine = await start_engine(log_bytes=20_000, step_ms=5)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    running = acme.start(max_tokens=600, ignore_eos=True)
    await read(running, 200)
    assert await refusal(acme.start()) == "queue_full"
    assert isinstance((await rival.answer(max_tokens=3)).events[-1], Finished)
    await acme.client.acknowledge(running.id, "acme", 200)
    assert (await acme.answer(max_tokens=3)).finished.reason == "length"


async def test_subscriptions_end_when_the_client_is_closed(start_engine):
    engine = await start_engine(step_ms=5)
    acme = Tenant("acme", await engine.client())
    running = acme.start(max_tokens=500, ignore_eos=True)
    await read(running, 3)
    await acme.client.close()
    with pytest.raises(EngineUnavailable):
        await read(running)
