"""Quotas: one per tenant, checked against the pool, numbered as a whole."""

from dataclasses import replace

import msgspec
import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from pagoda.engines import reports
from pagoda.pool import capacity
from pagoda.pool.accounts import build_accounts
from pagoda.pool.models import Quota, QuotaVersion
from pagoda.tenants.models import Tenant
from pagoda_inference.protocol import AccountReport, PoolReport

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool(info, settings):
    """The pool of the only engine has been seen: 64 blocks."""
    capacity.remember(settings.PAGODA_ENGINES[0], info)


def reserve(party, reservation, limit=None):
    quota = party.tenant.quota
    quota.reservation, quota.limit = reservation, limit
    quota.full_clean()
    quota.save()


def test_a_tenant_has_a_quota_from_its_beginning_to_its_end(acme):
    quota = Quota.objects.get(tenant=acme.tenant)
    assert (quota.reservation, quota.limit, quota.weight) == (0, None, 1.0)
    acme.tenant.delete()
    assert not Quota.objects.filter(pk=quota.pk).exists()


def test_reservations_together_fit_into_the_pool(acme, rival, pool):
    reserve(rival, 40)
    reserve(acme, 24)
    with pytest.raises(ValidationError, match="64 blocks and others reserve 40: at most 24 are left"):
        reserve(acme, 25)


def test_the_smallest_engine_counts(acme, pool, info, settings):
    settings.PAGODA_ENGINES = [*settings.PAGODA_ENGINES, "other:1"]
    capacity.remember("other:1", msgspec.structs.replace(info, total_blocks=32))
    capacity.remember("forgotten:1", msgspec.structs.replace(info, total_blocks=1))
    with pytest.raises(ValidationError, match="has 32 blocks"):
        reserve(acme, 33)


def test_before_an_engine_was_seen_nothing_is_refused(acme):
    reserve(acme, 1_000_000)


def test_a_suspended_tenant_reserves_nothing(acme, rival, pool):
    reserve(rival, 60)
    rival.tenant.is_active = False
    rival.tenant.save()
    reserve(acme, 64)


@pytest.mark.parametrize("wrong", [{"reservation": 9, "limit": 8}, {"weight": 0}, {"weight": 1e308}, {"limit": 0}])
def test_impossible_quotas_are_refused_with_one_sentence(acme, wrong):
    quota = acme.tenant.quota
    for name, value in wrong.items():
        setattr(quota, name, value)
    with pytest.raises(ValidationError) as refusal:
        quota.full_clean()
    assert len(refusal.value.messages) == 1


def test_no_limit_is_larger_than_the_pool(acme, rival, pool):
    reserve(acme, 0, limit=64)
    with pytest.raises(ValidationError, match="The pool has 64 blocks: leave this empty"):
        reserve(rival, 0, limit=65)


def test_a_limit_of_nothing_is_one_error(acme):
    with pytest.raises(ValidationError) as refusal:
        reserve(acme, 9, limit=0)
    assert refusal.value.messages == ["Ensure this value is greater than or equal to 1."]


def test_the_database_refuses_them_too(acme):
    with pytest.raises(IntegrityError), transaction.atomic():
        Quota.objects.filter(tenant=acme.tenant).update(reservation=9, limit=8)


def test_every_change_raises_the_version(acme, rival):
    seen = [QuotaVersion.current()]

    def changed():
        seen.append(QuotaVersion.current())
        return seen[-1] > seen[-2]

    reserve(acme, 5)
    assert changed()
    acme.tenant.is_active = False
    acme.tenant.save()
    assert changed()
    rival.tenant.delete()
    assert changed()
    Tenant.objects.create(slug="new", name="New")
    assert changed()
    assert QuotaVersion.objects.count() == 1


def test_accounts_are_the_active_tenants(acme, rival, info):
    reserve(acme, 10, 20)
    accounts = build_accounts("any:1", info)
    assert accounts.version == QuotaVersion.current()
    assert {account.id for account in accounts.accounts} == {str(acme.tenant.id), str(rival.tenant.id)}
    rival.tenant.is_active = False
    rival.tenant.save()
    [account] = build_accounts("any:1", info).accounts
    assert (account.id, account.reservation, account.limit, account.weight) == (str(acme.tenant.id), 10, 20, 1.0)


def test_a_limit_beyond_the_pool_is_the_pool(acme, rival, info):
    reserve(acme, 10, 5000)
    assert {account.limit for account in build_accounts("any:1", info).accounts} == {None}


def test_an_engine_whose_pool_shrank_is_told_the_size_that_the_reservations_were_made_for(
    acme, rival, info, pool, settings
):
    [engine] = settings.PAGODA_ENGINES
    reserve(acme, 40)
    reserve(rival, 20)
    assert build_accounts(engine, info).pool_blocks == 64
    smaller = msgspec.structs.replace(info, total_blocks=32)
    for _ in range(2):  # at every connection anew
        capacity.remember(engine, smaller)
        accounts = build_accounts(engine, smaller)
        assert accounts.pool_blocks == 64
        assert {account.reservation for account in accounts.accounts} == {40, 20}
    reserve(acme, 10)
    capacity.remember(engine, smaller)
    assert build_accounts(engine, smaller).pool_blocks == 32


def test_reservations_from_before_any_engine_was_seen_say_their_own_size(acme, rival, info):
    reserve(acme, 90)
    reserve(rival, 30)
    capacity.remember("any:1", info)
    assert build_accounts("any:1", info).pool_blocks == 120


def test_what_is_published_cannot_be_reserved(acme, pool, settings):
    [engine] = settings.PAGODA_ENGINES
    counters = {"hit_tokens": 0, "queried_tokens": 0, "tokens_in": 0, "tokens_out": 0}
    counts = {"evictions": {}, "evicted_by": {}, "preemptions": {}}
    public = AccountReport("public", 0, 10, 0, 10, 10, 1.0, 0, 0, 0, **counters, **counts)
    reports.remember(engine, PoolReport("i", 1, 0.0, 64, 54, 16, 2**20, 1, (public,)))
    try:
        with pytest.raises(ValidationError, match="at most 54 are left"):
            reserve(acme, 55)
        reserve(acme, 54)
    finally:
        reports.forget_all()


def test_the_caches_of_the_tiers_are_bounded_in_mib(acme, rival, info):
    Quota.objects.filter(tenant=acme.tenant).update(host_mib=64, disk_mib=0)
    bytes_of = {each.id: (each.host_bytes, each.disk_bytes) for each in build_accounts("any:1", info).accounts}
    assert bytes_of == {str(acme.tenant.id): (64 * 2**20, 0), str(rival.tenant.id): (None, None)}


def test_sizes_are_told_in_blocks_tokens_and_mib():
    pool = capacity.Capacity(total_blocks=64, block_size=16, bytes_per_block=2**19)
    assert pool.describe(64) == "64 blocks = 1,024 tokens = 32.0 MiB"
    assert replace(pool, block_size=32).tokens(3) == 96
