"""The live page: every account's numbers and their totals, the public account beside the tenants', and the alerts."""

from __future__ import annotations

import html
import time

import pytest

from pagoda.engines import reports
from pagoda.pool import capacity
from pagoda.pool.models import EnginePool
from pagoda_inference.protocol import AccountReport, AccountsSet, PoolReport

pytestmark = pytest.mark.django_db

MIB = 2**20


def account(id, active, cached, **numbers):
    nothing = {
        "shared": 0,
        "reservation": 0,
        "limit": 64,
        "weight": 1.0,
        "reserved_unused": 0,
        "running": 0,
        "waiting": 0,
    }
    nothing |= {"hit_tokens": 0, "queried_tokens": 0, "tokens_in": 0, "tokens_out": 0}
    nothing |= {"evictions": {}, "evicted_by": {}, "preemptions": {}}
    return AccountReport(id, active, cached, **(nothing | numbers))


@pytest.fixture
def report(settings, acme, rival):
    """A report that has just arrived: 64 blocks, two tenants and what is published."""
    mine, theirs = str(acme.tenant.pk), str(rival.tenant.pk)
    accounts = (
        account("public", 0, 4, reservation=4, limit=4),
        account(
            mine, 10, 6, shared=3, reservation=12, limit=32, running=2, waiting=1, queue_wait_s=1.5,
            hit_tokens=30, queried_tokens=40, evictions={"own_lru": 2, "reclaimed": 1}, preemptions={"swap": 1},
            evicted_by={mine: 2, theirs: 1}, tier_bytes={"host": MIB}, tier_limits={"host": 2 * MIB, "disk": 4 * MIB},
            demoted={"host": 5}, promoted={"host": 2, "disk": 1},
        ),
        account(theirs, 20, 0, reservation=24, reserved_unused=4, queried_tokens=60, demoted={"host": 1, "disk": 1}),
    )  # fmt: skip
    made = PoolReport(
        "i", 1, time.time(), 64, 24, 16, MIB, 1, accounts, tier_totals={"host": 8 * MIB}, alerts=("The disk is full.",)
    )
    reports.remember(settings.PAGODA_ENGINES[0], made)
    yield made
    reports.forget_all()


@pytest.fixture
def desk(client, operator):
    client.force_login(operator)
    return client


@pytest.fixture
def pool(desk, report):
    [engine] = desk.get("/admin/pool/live/data/").json()["engines"]
    return engine


def test_everything_adds_up_to_the_pool(pool):
    assert pool["adds_up"]
    assert pool["free"] + pool["sum"]["held"] == pool["total"] == 64
    for name in ("active", "cached", "held", "shared", "reservation", "reserved_unused", "running", "waiting"):
        assert pool["sum"][name] == sum(row[name] for row in pool["accounts"]), name
    assert pool["sum"]["hit_rate"] == 0.3


def test_what_is_published_has_a_row_of_its_own_after_the_tenants(pool):
    assert [(row["name"], row["public"]) for row in pool["accounts"]] == [
        ("Acme", False),
        ("Rival", False),
        ("Public", True),
    ]


def test_tiers_are_shown_with_their_bounds_and_what_moved(pool):
    acme, rival, _ = pool["accounts"]
    assert pool["tiers"] == {"host": 8 * MIB}
    assert (acme["tier_bytes"], acme["tier_limits"]) == ({"host": MIB}, {"host": 2 * MIB, "disk": 4 * MIB})
    assert (rival["tier_bytes"], rival["tier_limits"]) == ({}, {})
    assert pool["sum"]["demoted"] == {"host": 6, "disk": 1}
    assert pool["sum"]["promoted"] == {"host": 2, "disk": 1}


def test_operators_see_why_and_for_whom_blocks_were_taken(pool):
    acme = pool["accounts"][0]
    assert acme["evictions"] == {"own_lru": 2, "reclaimed": 1}
    assert acme["evicted_by"] == {"Acme": 2, "Rival": 1}
    assert acme["preemptions"] == {"swap": 1}
    assert (acme["hit_rate"], acme["queue_wait_s"]) == (0.75, 1.5)


@pytest.mark.parametrize("page", ["/admin/pool/live/", "/admin/pool/quota/"])
def test_alerts_stand_on_the_live_page_and_over_the_quotas(desk, report, settings, page):
    EnginePool.objects.create(
        address=settings.PAGODA_ENGINES[0], model="m", block_size=16, total_blocks=64, bytes_per_block=MIB
    )
    assert "The disk is full." in html.unescape(desk.get(page).content.decode())
    reports.mark_unreachable(settings.PAGODA_ENGINES[0])
    assert "works with" not in html.unescape(desk.get(page).content.decode())
    capacity.note_scaling(settings.PAGODA_ENGINES[0], AccountsSet(1, True, scaled=0.64))
    text = html.unescape(desk.get(page).content.decode())
    assert f"The engine at {settings.PAGODA_ENGINES[0]} works with 64 % of every reservation." in text
    capacity.note_scaling(settings.PAGODA_ENGINES[0], AccountsSet(2, True))
    assert "works with" not in html.unescape(desk.get(page).content.decode())


def test_with_several_engines_an_alert_says_whose_it_is(desk, report, settings):
    first = settings.PAGODA_ENGINES[0]
    settings.PAGODA_ENGINES = [first, "unix:/nobody.sock"]
    assert f"{first}: The disk is full." in desk.get("/admin/pool/live/data/").json()["alerts"]
