"""Accounts over the wire: versions, refusals, limits, and what holds before anybody has set any."""

from __future__ import annotations

import json

import pytest

from pagoda_inference.client import EngineRefused
from pagoda_inference.protocol import Account, SetAccounts
from tests.inference.running_engine import Tenant, read

BOTH = (Account("acme", reservation=16, limit=64), Account("rival"))


async def test_a_version_is_applied_once(engine, acme):
    client = acme.client
    first = await client.set_accounts(SetAccounts(5, BOTH))
    again = await client.set_accounts(SetAccounts(5, ()))
    older = await client.set_accounts(SetAccounts(4, ()))
    assert (first.version, first.applied) == (5, True)
    assert [(a.version, a.applied, a.error) for a in (again, older)] == [(5, False, None)] * 2
    report = await engine.report()
    assert report.accounts_version == 5
    assert {a.id: (a.reservation, a.limit) for a in report.accounts} == {"acme": (16, 64), "rival": (0, report.total)}


async def test_a_list_the_pool_cannot_honour_is_refused_as_a_whole(engine, acme):
    await acme.client.set_accounts(SetAccounts(1, BOTH))
    answer = await acme.client.set_accounts(SetAccounts(2, (Account("acme", reservation=1000), Account("rival"))))
    assert (answer.version, answer.applied) == (1, False)
    assert answer.error is not None
    assert "256" in answer.error.message
    assert (await engine.report()).accounts_version == 1


async def test_before_accounts_are_set_everybody_is_served_and_afterwards_only_those(acme, rival):
    await acme.answer(max_tokens=2)
    await rival.answer(max_tokens=2)
    await acme.client.set_accounts(SetAccounts(1, (Account("acme"),)))
    await acme.answer(max_tokens=2)
    with pytest.raises(EngineRefused, match="unknown_account"):
        await rival.answer()


async def test_an_engine_that_requires_accounts_serves_nobody_until_they_are_set(start_engine):
    engine = await start_engine(require_accounts=True)
    acme = Tenant("acme", await engine.client())
    with pytest.raises(EngineRefused, match="unknown_account"):
        await acme.answer()
    await acme.client.set_accounts(SetAccounts(1, BOTH))
    assert (await acme.answer(max_tokens=2)).finished.reason == "length"


async def test_accounts_come_from_a_file_until_the_platform_speaks(start_engine, socket_folder):
    path = socket_folder / "accounts.json"
    path.write_text(json.dumps([{"id": "acme", "reservation": 32, "limit": 100, "weight": 2}]))
    engine = await start_engine(accounts=path)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    assert (await acme.answer(max_tokens=2)).finished.reason == "length"
    with pytest.raises(EngineRefused, match="unknown_account"):
        await rival.answer()
    assert (await acme.client.set_accounts(SetAccounts(1, BOTH))).applied
    assert (await rival.answer(max_tokens=2)).finished.reason == "length"


async def test_a_deleted_accounts_work_ends_and_its_blocks_are_free(start_engine):
    engine = await start_engine(step_ms=2)
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    await acme.client.set_accounts(SetAccounts(1, BOTH))
    running = acme.start("x" * 100, max_tokens=500, ignore_eos=True)
    other = rival.start(max_tokens=50, ignore_eos=True)
    await read(running, 5)
    assert (await acme.client.set_accounts(SetAccounts(2, (Account("rival"),)))).applied
    finished = (await read(running)).finished
    assert (finished.reason, finished.error.code) == ("error", "unknown_account")
    assert (await read(other)).finished.reason == "length"
    report = await engine.report()
    assert [account.id for account in report.accounts] == ["rival"]
    assert report.free + report.accounts[0].cached == report.total


async def test_an_account_never_holds_more_than_its_limit(start_engine):
    engine = await start_engine()
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    await acme.client.set_accounts(SetAccounts(1, (Account("acme", limit=20), Account("rival"))))
    running = [acme.start(f"{n} " * 20, max_tokens=100, ignore_eos=True) for n in range(12)]
    others = [rival.start(f"{n} " * 20, max_tokens=100, ignore_eos=True) for n in range(4)]
    watch = engine.report
    for subscription in running:
        await read(subscription, 20)
        report = await watch()
        held = {account.id: account.active + account.cached for account in report.accounts}
        assert held["acme"] <= 20
        assert report.free + sum(held.values()) == report.total
    for subscription in (*running, *others):
        assert (await read(subscription)).finished.reason == "length"


async def test_a_request_left_alone_at_its_limit_finishes_with_length(start_engine):
    engine = await start_engine()
    acme = Tenant("acme", await engine.client())
    await acme.client.set_accounts(SetAccounts(1, (Account("acme", limit=4), Account("rival"))))
    finished = (await acme.answer("x" * 20, max_tokens=500, ignore_eos=True)).finished
    assert finished.reason == "length"
    assert finished.usage.prompt_tokens + finished.usage.output_tokens == 65
    assert finished.error is None
    assert finished.limit_reached is not None
    assert finished.limit_reached.code == "kv_limit_exceeded"
    assert finished.limit_reached.details == {"limit_blocks": 4, "block_size": 16}


async def test_an_answer_of_max_tokens_reached_no_limit_of_its_tenant(acme):
    finished = (await acme.answer(max_tokens=2)).finished
    assert (finished.reason, finished.limit_reached) == ("length", None)
