"""A change of a quota is in force on the engines right after its commit."""

import msgspec
import pytest
from django.db import transaction
from django.db.models import F

from pagoda.pool import capacity, pushing
from pagoda.pool.models import EnginePool, Quota, QuotaVersion
from pagoda.tenants.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)


def test_saving_reaches_the_engine(engine, in_engine, acme, rival):
    acme.tenant.quota.reservation = 12
    acme.tenant.quota.limit = 30
    acme.tenant.quota.weight = 2.5
    acme.tenant.quota.save()
    account = in_engine()[str(acme.tenant.id)]
    assert (account.reservation, account.limit, account.weight) == (12, 30, 2.5)
    assert in_engine()[str(rival.tenant.id)].reservation == 0
    assert pushing.last_push() == (pushing.Pushed(engine),)
    assert EnginePool.objects.get().total_blocks == 64


def test_what_is_rolled_back_is_not_pushed(in_engine, acme):
    with transaction.atomic():
        acme.tenant.quota.reservation = 12
        acme.tenant.quota.save()
        transaction.set_rollback(True)
    assert in_engine()[str(acme.tenant.id)].reservation == 0


def test_a_suspended_or_deleted_tenant_has_no_account(in_engine, acme, rival):
    acme.tenant.is_active = False
    acme.tenant.save()
    assert set(in_engine()) == {str(rival.tenant.id)}
    acme.tenant.is_active = True
    acme.tenant.save()
    assert set(in_engine()) == {str(acme.tenant.id), str(rival.tenant.id)}
    Tenant.objects.filter(pk=rival.tenant.pk).delete()
    assert set(in_engine()) == {str(acme.tenant.id)}


def test_an_engine_that_is_ahead_of_the_database_is_passed(in_engine, acme):
    """After a restored backup the engine knows a later version than the database."""
    QuotaVersion.objects.update(version=5)
    acme.tenant.quota.reservation = 7
    acme.tenant.quota.save()
    assert in_engine()[str(acme.tenant.id)].reservation == 7
    assert QuotaVersion.current() > 5


def test_a_number_that_the_engine_knows_from_another_database_is_passed(in_engine, acme):
    QuotaVersion.objects.update(version=F("version") - 1)
    acme.tenant.quota.reservation = 8
    acme.tenant.quota.save()
    assert in_engine()[str(acme.tenant.id)].reservation == 8


def test_an_unreachable_engine_stops_nobody(engine, in_engine, acme, settings):
    settings.PAGODA_ENGINES = ["unix:/tmp/no-such-engine.sock", engine]
    acme.tenant.quota.reservation = 3
    acme.tenant.quota.save()
    gone, there = pushing.last_push()
    assert (gone.unreachable, there.problem) == (True, "")
    assert in_engine()[str(acme.tenant.id)].reservation == 3


def test_an_engine_with_fewer_blocks_than_the_quotas_were_made_for_scales_them(engine, in_engine, acme, rival, info):
    capacity.remember(engine, msgspec.structs.replace(info, total_blocks=128))
    for party, reservation in ((acme, 64), (rival, 32)):
        Quota.objects.filter(tenant=party.tenant).update(reservation=reservation)
    for _ in range(2):  # the second time the engine's present size is known
        acme.tenant.save()
        assert [pushed.problem for pushed in pushing.last_push()] == [""]
        reservations = [in_engine()[str(party.tenant.id)].reservation for party in (acme, rival)]
        assert reservations == [42, 21]
        assert EnginePool.objects.get(address=engine).scaled == pytest.approx(64 / 96)
    Quota.objects.filter(tenant=acme.tenant).update(reservation=30)
    acme.tenant.save()
    assert in_engine()[str(acme.tenant.id)].reservation == 30
    assert EnginePool.objects.get(address=engine).scaled == 1
