"""The web process keeps every engine's accounts as the database has them."""

import asyncio
from pathlib import Path

import pytest
from channels.db import database_sync_to_async
from engine_at_hand import DaemonProcess, new_address

from pagoda.engines import connections, reports
from pagoda.pool import pushing
from pagoda.pool.models import Quota, QuotaVersion
from pagoda_inference.protocol import PoolReport

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def seen():
    """The reports that have arrived."""
    return []


@pytest.fixture
async def next_report(monkeypatch, seen):
    """Waits for a report that fulfils a condition."""
    arrived = asyncio.Condition()

    async def listen(client, info, report):
        async with arrived:
            seen.append(report)
            arrived.notify_all()

    monkeypatch.setattr(connections, "report_listeners", [*connections.report_listeners, listen])

    async def wait(address, condition, within_s=60):
        async with asyncio.timeout(within_s), arrived:
            await arrived.wait_for(lambda: (report := reports.latest(address)) is not None and condition(report))
        return reports.latest(address)

    return wait


@pytest.fixture
async def web(next_report):
    """The web process's connections, as the server's start makes them."""
    await connections.start()
    yield
    await connections.stop()


def reservation_of(report, party):
    return {account.id: account.reservation for account in report.accounts}.get(str(party.tenant.id))


def change_without_push(party, reservation):
    Quota.objects.filter(tenant=party.tenant).update(reservation=reservation)
    QuotaVersion.raise_above(0)


async def test_an_engine_that_is_behind_is_told_within_two_seconds(engine, acme, rival, web, next_report, seen):
    """Reports come every second: the first one that is behind has it told, and the one after that is not.

    Where the machine has much else to do they queue: the best of three changes counts.
    """
    assert connections.WATCH_INTERVAL_S == 1
    await next_report(engine, lambda report: reservation_of(report, acme) == 0)
    heard = []
    for reservation in (9, 10, 11):
        await database_sync_to_async(change_without_push)(acme, reservation)
        seen.clear()
        report = await next_report(engine, lambda report, wanted=reservation: reservation_of(report, acme) == wanted)
        heard.append(len(seen))
        if heard[-1] <= 3:  # of which one may have been under way
            break
    assert min(heard) <= 3
    assert reservation_of(report, rival) == 0
    assert report.accounts_version == await database_sync_to_async(QuotaVersion.current)()


async def test_the_model_is_known_while_the_engine_is_there(engine, acme, web, next_report):
    await next_report(engine, lambda report: True)
    assert connections.default_model().id == connections.model_of(engine).id
    assert reports.is_reachable(engine)
    assert (await connections.get_client(engine)).connected


async def test_a_restarted_engine_gets_the_accounts_before_anything_else(acme, next_report, settings, tmp_path: Path):
    address = new_address()
    settings.PAGODA_ENGINES = [address]
    first, second = (DaemonProcess(address, tmp_path, step_ms=0) for _ in range(2))
    await first.start()
    await connections.start()
    try:
        report = await next_report(address, lambda report: True)
        assert reservation_of(report, acme) == 0
        await first.kill()
        await database_sync_to_async(change_without_push)(acme, 4)
        await second.start()
        later = await next_report(address, lambda new: new.instance != report.instance)
        assert reservation_of(later, acme) == 4
        assert reports.history(address)[0].instance == later.instance
    finally:
        await connections.stop()
        await first.stop()
        await second.stop()


async def test_a_report_of_the_present_version_pushes_nothing(acme, info):
    class Unused:
        async def set_accounts(self, message):
            raise AssertionError("pushed without need")

    version = await database_sync_to_async(QuotaVersion.current)()
    report = PoolReport("i", 1, 0.0, 64, 64, 16, 2**20, version, ())
    await pushing.follow_report(Unused(), info, report)
