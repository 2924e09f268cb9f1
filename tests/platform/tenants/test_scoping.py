"""A tenant's rows are reached through its scope alone, in every way that Django offers."""

import asyncio
import uuid

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, models

from pagoda.tenants.models import ApiKey, Invitation, Membership, Role
from pagoda.tenants.scoping import CrossTenantAccess, TenantOwned, TenantScopeRequired, current_tenant_id, tenant_scope
from pagoda.usage.models import UsageRecord

pytestmark = pytest.mark.django_db


def usage_row(**fields):
    numbers = {"prompt_tokens": 3, "cached_tokens": 0, "output_tokens": 2}
    return UsageRecord(generation_id=uuid.uuid4(), model="echo", purpose="chat", **numbers, **fields)


def key_row(party, name):
    return ApiKey(tenant=party.tenant, label=name, prefix=name[:8], hash=name)


@pytest.mark.parametrize(
    "query",
    [
        lambda: Membership.objects.all(),
        lambda: Membership.objects.count(),
        lambda: Membership.objects.create(role=Role.MEMBER),
        lambda: Membership.objects.bulk_create([]),
        lambda: Membership.objects.update(role=Role.ADMIN),
        lambda: Membership.objects.get_or_create(role=Role.ADMIN),
        lambda: Membership.objects.raw("select * from tenants_membership"),
    ],
)
def test_a_query_outside_a_scope_is_refused(query):
    with pytest.raises(TenantScopeRequired):
        query()


def test_a_related_manager_outside_a_scope_is_refused(acme):
    with pytest.raises(TenantScopeRequired):
        acme.tenant.memberships.all()


def test_a_query_sees_the_tenant_in_scope_alone(acme, rival):
    with tenant_scope(acme.tenant.id):
        assert {row.user for row in Membership.objects.select_related("user")} == {acme.admin, acme.member}
        assert Membership.objects.filter(user=rival.member).first() is None
        assert rival.tenant.memberships.count() == 0
    assert Membership.across_tenants.count() == 4


def test_the_inner_scope_counts_and_ends(acme, rival):
    with tenant_scope(acme.tenant.id):
        with tenant_scope(rival.tenant.id):
            assert current_tenant_id() == rival.tenant.id
        assert current_tenant_id() == acme.tenant.id
    with pytest.raises(TenantScopeRequired):
        current_tenant_id()


def test_a_scope_is_a_tenants_id_and_nothing_else(acme):
    for wrong in (None, str(acme.tenant.id), acme.tenant):
        with pytest.raises(TypeError), tenant_scope(wrong):
            pass


def test_a_row_made_in_a_scope_belongs_to_its_tenant(acme):
    with tenant_scope(acme.tenant.id):
        row = usage_row()
        row.save()
        [other] = UsageRecord.objects.bulk_create([usage_row()])
    assert row.tenant_id == other.tenant_id == acme.tenant.id


def test_a_row_without_tenant_is_not_stored_outside_a_scope():
    with pytest.raises(TenantScopeRequired):
        usage_row().save()
    with pytest.raises(TenantScopeRequired):
        UsageRecord.across_tenants.bulk_create([usage_row()])


def test_another_tenants_row_is_neither_saved_nor_deleted(acme, rival):
    row = usage_row(tenant=rival.tenant)
    row.save()
    with tenant_scope(acme.tenant.id):
        for act in (row.save, row.delete, usage_row(tenant=rival.tenant).save):
            with pytest.raises(CrossTenantAccess):
                act()
        with pytest.raises(CrossTenantAccess):
            UsageRecord.objects.bulk_create([usage_row(tenant=rival.tenant)])
        with pytest.raises(CrossTenantAccess):
            UsageRecord.objects.bulk_update([row], ["model"])
        assert UsageRecord.objects.update(model="stolen") == 0
        assert UsageRecord.objects.all().delete()[0] == 0
    assert UsageRecord.across_tenants.get().model == "echo"


def test_a_row_never_changes_its_tenant(acme, rival):
    usage_row(tenant=rival.tenant).save()
    row = UsageRecord.across_tenants.get()
    row.tenant = acme.tenant
    with pytest.raises(CrossTenantAccess):
        row.save()
    with tenant_scope(acme.tenant.id), pytest.raises(CrossTenantAccess):
        row.save()
    with tenant_scope(rival.tenant.id), pytest.raises(CrossTenantAccess):
        UsageRecord.objects.update(tenant=acme.tenant)
    with pytest.raises(CrossTenantAccess):
        UsageRecord.across_tenants.update(tenant_id=acme.tenant.id)


def test_a_row_refers_to_rows_of_its_own_tenant_alone(acme, rival):
    own, foreign = key_row(acme, "own"), key_row(rival, "foreign")
    own.save()
    foreign.save()
    with tenant_scope(acme.tenant.id):
        usage_row(api_key=own).save()
        for reference in ({"api_key": foreign}, {"api_key_id": foreign.id}):
            with pytest.raises(CrossTenantAccess):
                usage_row(**reference).save()
            with pytest.raises(CrossTenantAccess):
                UsageRecord.objects.bulk_create([usage_row(**reference)])
            with pytest.raises(CrossTenantAccess):
                UsageRecord.objects.update(**reference)
        row = UsageRecord.objects.get()
        row.api_key = foreign
        with pytest.raises(CrossTenantAccess):
            row.save(update_fields=["api_key"])
        with pytest.raises(CrossTenantAccess):
            UsageRecord.objects.bulk_update([row], ["api_key"])
        with pytest.raises(CrossTenantAccess):
            UsageRecord.objects.update(api_key=models.F("api_key"))
        assert UsageRecord.objects.update(api_key=own) == 1
        assert UsageRecord.objects.update(api_key=None) == 1


def test_a_related_manager_writes_for_the_tenant_in_scope_alone(acme, rival):
    with tenant_scope(acme.tenant.id), pytest.raises(CrossTenantAccess):
        rival.tenant.memberships.create(user=acme.member)


def test_validation_looks_at_the_rows_own_tenant(acme, rival):
    again = Membership(tenant=acme.tenant, user=acme.member)
    with pytest.raises(Exception, match="already exists"):
        again.full_clean()
    Membership(tenant=acme.tenant, user=rival.member).full_clean()


async def test_tasks_and_threads_keep_their_own_scope(acme, rival):
    async def members(party):
        with tenant_scope(party.tenant.id):
            await asyncio.sleep(0)
            in_thread = await sync_to_async(lambda: current_tenant_id())()
            await asyncio.sleep(0)
            return in_thread, current_tenant_id()

    first, second = await asyncio.gather(members(acme), members(rival))
    assert first == (acme.tenant.id,) * 2
    assert second == (rival.tenant.id,) * 2
    with pytest.raises(TenantScopeRequired):
        current_tenant_id()


@pytest.mark.django_db(transaction=True)
async def test_async_queries_are_scoped(acme, rival):
    with pytest.raises(TenantScopeRequired):
        await Membership.objects.acount()
    with tenant_scope(rival.tenant.id):
        assert {row.user_id async for row in Membership.objects.all()} == {rival.admin.id, rival.member.id}
        assert await Membership.objects.filter(user=acme.member).aexists() is False
    await sync_to_async(connections.close_all)()


def test_every_tenant_owned_model_is_scoped_by_default():
    found = []

    def walk(model):
        for child in model.__subclasses__():
            if not child._meta.abstract:
                found.append(child)
            walk(child)

    walk(TenantOwned)
    assert {Membership, Invitation, UsageRecord} <= set(found)
    for model in found:
        assert model._meta.default_manager_name == "objects", model
        with pytest.raises(TenantScopeRequired):
            model._default_manager.all()
