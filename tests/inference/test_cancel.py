"""Stopping generations: the receipt, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import random

import pytest

from pagoda_inference.service import INLINE_CHARACTERS
from tests.inference.running_engine import RunningEngine, Tenant, read


async def idle_report(engine: RunningEngine):
    """The pool, which must add up with nothing active, once copies to the host that hold blocks have ended."""
    report = await engine.report()
    async with asyncio.timeout(60):
        while any(account.active for account in report.accounts) and not any(a.running for a in report.accounts):
            report = await engine.report()
    assert all(account.active == account.running == account.waiting == 0 for account in report.accounts)
    assert report.free + sum(account.cached for account in report.accounts) == report.total
    return report


async def test_cancel_frees_the_blocks_and_says_how_many(start_engine):
    engine = await start_engine(step_ms=2)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    running = acme.start("x" * 64, max_tokens=500, ignore_eos=True)
    other = rival.start(max_tokens=50, ignore_eos=True)
    beginning = await read(running, 10)
    await acme.client.cancel(running.id, "acme")
    rest = await read(running)
    assert rest.finished.reason == "cancelled"
    assert rest.finished.usage.blocks_freed >= 5
    assert rest.finished.usage.output_tokens == len(beginning.token_ids) + len(rest.token_ids)
    assert (await read(other)).finished.reason == "length"
    await idle_report(engine)


async def test_cancelling_twice_or_after_the_end_changes_nothing(acme):
    whole = await acme.answer(id="g", max_tokens=5)
    await acme.client.cancel("g", "acme")
    await acme.client.cancel("g", "acme")
    assert (await read(acme.attach("g"))).events == whole.events


async def test_a_waiting_generation_is_cancelled_before_it_starts(start_engine):
    engine = await start_engine(max_running=1, step_ms=2)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    running = rival.start(max_tokens=1000, ignore_eos=True)
    await read(running, 2)
    waiting = acme.start()
    await acme.client.cancel(waiting.id, "acme")
    answer = await read(waiting)
    assert [type(event).__name__ for event in answer.events] == ["Finished"]
    assert (answer.finished.seq, answer.finished.reason) == (1, "cancelled")
    await rival.client.cancel(running.id, "rival")
    assert (await read(running)).finished.reason == "cancelled"
    await idle_report(engine)


async def test_a_generation_is_cancelled_while_its_prompt_is_tokenised(start_engine):
    engine = await start_engine(pool_tokens=16384, context_length=8192, step_ms=2)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    other = rival.start(max_tokens=5, ignore_eos=True)
    subscription = acme.start("x" * (INLINE_CHARACTERS + 1), max_tokens=1000, ignore_eos=True)
    await acme.client.cancel(subscription.id, "acme")
    assert (await read(subscription)).finished.reason == "cancelled"
    assert (await read(other)).finished.reason == "length"
    await idle_report(engine)


async def test_200_random_cancels_leak_nothing(start_engine):
    engine = await start_engine()
    tenants = [Tenant(name, await engine.client()) for name in ("acme", "rival")]
    random_ = random.Random(7)

    async def one(tenant: Tenant) -> str:
        prompt = random_.choice("abcdef") * random_.randint(1, 90)
        subscription = tenant.start(prompt, max_tokens=random_.randint(1, 60), ignore_eos=True)
        await read(subscription, random_.randint(0, 30))
        await tenant.client.cancel(subscription.id, tenant.account)
        await read(subscription)
        return subscription.id

    await asyncio.gather(*(one(random_.choice(tenants)) for _ in range(200)))
    await idle_report(engine)


@pytest.mark.parametrize("leave", ["close the subscription", "close the client"])
async def test_a_generation_for_one_caller_ends_when_nobody_listens(start_engine, leave):
    engine = await start_engine(step_ms=1)
    client = await engine.client()
    acme, watcher = Tenant("acme", client), Tenant("acme", await engine.client())
    first = acme.start(id="g", max_tokens=2000, ignore_eos=True, on_disconnect="cancel")
    second = watcher.attach("g") if await read(first, 2) else None
    await read(second, 2)
    await client.close() if leave == "close the client" else first.close()
    await read(second, 5)  # somebody still listens
    second.close()
    async for report in watcher.client.watch(0.05):  # nobody's goodbye need have arrived before this
        if not any(account.running or account.waiting for account in report.accounts):
            break
    assert (await read(watcher.attach("g", after_seq=1))).finished.reason == "cancelled"
    await idle_report(engine)


async def test_a_conversation_goes_on_when_nobody_listens(start_engine):
    engine = await start_engine(step_ms=1)
    client = await engine.client()
    running = Tenant("acme", client).start(id="g", max_tokens=60, ignore_eos=True)
    await read(running, 2)
    await client.close()
    later = Tenant("acme", await engine.client())
    assert (await read(later.attach("g", after_seq=1))).finished.reason == "length"
