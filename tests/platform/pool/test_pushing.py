"""A change of a quota is in force on the engines right after its commit."""

import pytest
from django.db import transaction
from django.db.models import F

from pagoda.pool import pushing
from pagoda.pool.models import EnginePool, QuotaVersion
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
