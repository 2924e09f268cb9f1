"""Sums that are kept: of every record before their mark, once, whoever computes them and whenever."""

import uuid
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pytest
from askers import key_of
from django.db import connection

from pagoda.tenants.models import User
from pagoda.tenants.scoping import TenantScopeRequired, tenant_scope
from pagoda.usage import sums
from pagoda.usage.models import SummedUntil, UsageRecord, UsageSum
from pagoda.usage.rollup import roll_up

pytestmark = pytest.mark.django_db

NOON = datetime(2025, 3, 10, 12, tzinfo=UTC)
WHOLE = (datetime(2025, 3, 1, tzinfo=UTC), datetime(2025, 4, 1, tzinfo=UTC))


def record(party, when, prompt=10, output=5, **fields):
    return UsageRecord.across_tenants.create(
        tenant=party.tenant, generation_id=uuid.uuid4(), model="echo", purpose="api", prompt_tokens=prompt,
        cached_tokens=0, output_tokens=output, created=when, **fields,
    )  # fmt: skip


def generations(party, *columns):
    with tenant_scope(party.tenant.id):
        return sum(row["generations"] for row in sums.summed(*WHOLE, *(columns or ("model",))))


def kept(party):
    rows = UsageSum.across_tenants.filter(tenant=party.tenant).order_by("begin")
    return [(row.begin, row.generations) for row in rows]


def test_days_that_are_over_are_kept_whole_and_the_present_one_by_the_hour(acme, rival):
    yesterday = NOON - timedelta(days=1)
    for when in (yesterday, yesterday + timedelta(hours=3), NOON - timedelta(hours=2), NOON - timedelta(minutes=1)):
        record(acme, when)
    record(rival, yesterday)
    sums.keep_sums(WHOLE[0], NOON + timedelta(minutes=5))
    assert kept(acme) == [
        (yesterday.replace(hour=0), 2),
        (NOON - timedelta(hours=2), 1),
        (NOON - timedelta(hours=1), 1),
    ]
    assert SummedUntil.objects.get().until == NOON
    sums.keep_sums(NOON, NOON + timedelta(days=1))
    assert kept(acme) == [(yesterday.replace(hour=0), 2), (NOON.replace(hour=0), 2)]
    assert kept(rival) == [(yesterday.replace(hour=0), 1)]


def test_an_hour_is_summed_when_it_has_settled(acme, rival):
    record(acme, NOON - timedelta(seconds=1))
    sums.keep_sums(NOON, NOON + sums.SETTLED - timedelta(seconds=1))
    assert kept(acme) == []
    assert generations(acme) == 1
    sums.keep_sums(NOON, NOON + sums.SETTLED)
    assert kept(acme) == [(NOON - timedelta(hours=1), 1)]
    assert generations(acme) == 1


def test_what_is_kept_is_not_read_again(acme, rival, django_assert_num_queries):
    record(acme, NOON)
    sums.keep_sums(WHOLE[0], NOON + timedelta(days=40))
    with tenant_scope(acme.tenant.id), django_assert_num_queries(3) as queries:
        rows = sums.summed(*WHOLE, "model")
    assert [row["prompt_tokens"] for row in rows] == [10]
    assert not [query["sql"] for query in queries if "usage_usagerecord" in query["sql"]]


def test_a_record_that_came_late_is_in_after_the_next_run(acme, rival):
    now = datetime.now(UTC)
    record(acme, now - timedelta(hours=30))
    roll_up()
    record(acme, now - timedelta(hours=29))
    roll_up()
    with tenant_scope(acme.tenant.id):
        assert sum(row["generations"] for row in sums.summed(now.replace(hour=0) - timedelta(days=3), now)) == 2


def test_the_mark_never_goes_back(acme, rival):
    record(acme, NOON - timedelta(hours=1))
    sums.keep_sums(NOON, NOON + timedelta(hours=1))
    before = SummedUntil.objects.get().until
    sums.keep_sums(NOON, NOON - timedelta(hours=5))  # another machine, whose clock is slow
    assert SummedUntil.objects.get().until == before
    assert generations(acme) == 1


def test_a_worker_that_was_away_goes_on_where_it_stopped(acme, rival):
    record(acme, NOON - timedelta(days=8))
    sums.keep_sums(NOON - timedelta(days=8), NOON - timedelta(days=7))
    record(acme, NOON - timedelta(days=5))
    sums.keep_sums(NOON - timedelta(days=2), NOON)
    assert [count for _begin, count in kept(acme)] == [1, 1]


def test_more_that_is_summed_during_a_read_is_not_counted_twice(acme, rival, monkeypatch):
    record(acme, NOON - timedelta(hours=2))
    record(acme, NOON + timedelta(hours=2))
    sums.keep_sums(NOON, NOON + sums.SETTLED)
    read, late = sums._by, iter([NOON + timedelta(days=1)])

    def read_after_the_worker(rows, *rest):
        """The mark was read already; now the whole day becomes one row."""
        if rows.model is UsageSum and (now := next(late, None)):
            sums.keep_sums(now, now)
        return read(rows, *rest)

    monkeypatch.setattr(sums, "_by", read_after_the_worker)
    assert generations(acme) == 2
    assert kept(acme) == [(NOON.replace(hour=0), 2)]


@pytest.mark.django_db(transaction=True)
def test_side_by_side_they_are_kept_once(acme, rival):
    for hour in range(30):
        record(acme, NOON - timedelta(hours=hour))
    together = Barrier(4)

    def run():
        together.wait()
        sums.keep_sums(WHOLE[0], NOON + timedelta(hours=2))
        connection.close()

    threads = [Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(count for _begin, count in kept(acme)) == 30
    assert generations(acme) == 30


def test_an_account_that_is_deleted_leaves_its_sums(acme, rival):
    record(acme, NOON, user=acme.member)
    record(acme, NOON, api_key=key_of(acme))
    sums.keep_sums(WHOLE[0], NOON + timedelta(days=2))
    User.objects.get(pk=acme.member.pk).delete()
    assert generations(acme, "user_id") == 2


def test_a_deleted_tenant_takes_its_sums_along(acme, rival):
    for party in (acme, rival):
        record(party, NOON)
    sums.keep_sums(WHOLE[0], NOON + timedelta(days=2))
    acme.tenant.delete()
    assert {row.tenant_id for row in UsageSum.across_tenants.all()} == {rival.tenant.id}


def test_nothing_is_summed_outside_a_tenant(acme, rival):
    with pytest.raises(TenantScopeRequired):
        sums.summed(*WHOLE, "model")
