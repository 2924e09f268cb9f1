"""Operators set quotas and watch the pool; nobody else gets in."""

import html
import re
import uuid

import pytest
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from pagoda.pool.models import Quota
from pagoda.tenants.models import AuditEntry, Tenant
from pagoda.usage.models import UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)

LIVE = "/admin/pool/live/"


@pytest.fixture
def desk(client, operator):
    client.force_login(operator)
    return client


def form(tenant, **quota):
    """The tenant's page as a browser sends it."""
    inlines = {}
    empty = ("limits", "prices", "memberships", "invitations", "api_keys", "file_quota")
    for prefix, count in (("quota", 1), *((each, 0) for each in empty)):
        inlines |= {f"{prefix}-TOTAL_FORMS": count, f"{prefix}-INITIAL_FORMS": 0 if tenant is None else count}
    if tenant is not None:
        inlines["quota-0-tenant"] = str(tenant.id)
    numbers = {"reservation": 0, "limit": "", "weight": 1} | quota
    numbers = {f"quota-0-{name}": value for name, value in numbers.items()}
    fields = {"name": getattr(tenant, "name", "New"), "slug": getattr(tenant, "slug", "new"), "is_active": "on"}
    return fields | {"cache_scope": "tenant"} | inlines | numbers


def change(desk, tenant, **quota):
    return desk.post(f"/admin/tenants/tenant/{tenant.id}/change/", form(tenant, **quota), follow=True)


def said(response):
    return html.unescape(" ".join(str(message) for message in response.context["messages"]))


def test_an_edit_is_in_force_when_the_page_says_so(desk, in_engine, acme, rival):
    response = change(desk, acme.tenant, reservation=16, limit=32, weight=2)
    assert "in force on every engine" in said(response)
    account = in_engine()[str(acme.tenant.id)]
    assert (account.reservation, account.limit, account.weight) == (16, 32, 2)
    assert in_engine()[str(rival.tenant.id)].reservation == 0


def test_an_edit_is_audited(desk, operator, acme):
    change(desk, acme.tenant, reservation=16)
    entry = AuditEntry.across_tenants.get(what="quota.changed")
    assert (entry.who, entry.tenant, entry.details["reservation"]) == (operator, acme.tenant, 16)


def test_the_tiers_have_quotas_too(desk, acme, rival):
    change(desk, acme.tenant, host_mib=64, disk_mib=1024)
    quotas = {quota.tenant_id: (quota.host_mib, quota.disk_mib) for quota in Quota.objects.all()}
    assert quotas == {acme.tenant.id: (64, 1024), rival.tenant.id: (None, None)}
    details = AuditEntry.across_tenants.get(what="quota.changed").details
    assert (details["host_mib"], details["disk_mib"]) == (64, 1024)


def test_what_the_pool_cannot_honour_is_refused_with_the_numbers(desk, engine, acme, rival):
    change(desk, rival.tenant, reservation=40)
    response = change(desk, acme.tenant, reservation=25)
    assert "The pool has 64 blocks and others reserve 40: at most 24 are left." in response.content.decode()
    response = change(desk, acme.tenant, reservation=9, limit=8)
    assert "cannot exceed the limit" in response.content.decode()
    assert Quota.objects.get(tenant=acme.tenant).reservation == 0


def test_an_unreachable_engine_is_named(desk, acme, settings):
    response = change(desk, acme.tenant, reservation=16)
    assert f"The engine at {settings.PAGODA_ENGINES[0]} cannot be reached" in said(response)
    assert Quota.objects.get(tenant=acme.tenant).reservation == 16


def test_a_new_tenant_is_made_with_its_quota(desk, in_engine):
    response = desk.post("/admin/tenants/tenant/add/", form(None, reservation=8), follow=True)
    assert response.status_code == 200
    tenant = Tenant.objects.get(slug="new")
    assert tenant.quota.reservation == 8
    assert in_engine()[str(tenant.id)].reservation == 8


def test_what_a_tenants_page_shows_is_worked_out_once(desk, engine, acme, rival, django_assert_max_num_queries):
    """Not each time that its template looks at a field: sums over a month are not cheap."""
    with django_assert_max_num_queries(40) as queries:
        page = desk.get(f"/admin/tenants/tenant/{acme.tenant.pk}/change/")
    assert "others leave" in page.content.decode()
    assert sum('AS "files"' in each["sql"] for each in queries) == 1


def test_quotas_have_a_page_of_their_own(desk, in_engine, acme):
    page = desk.get(f"/admin/pool/quota/{acme.tenant.id}/change/").content.decode()
    assert "64 blocks = 1,024 tokens" in page
    desk.post(f"/admin/pool/quota/{acme.tenant.id}/change/", {"reservation": 5, "limit": "", "weight": 1})
    assert in_engine()[str(acme.tenant.id)].reservation == 5


def test_deleting_a_tenant_takes_its_account(desk, in_engine, acme, rival):
    desk.post(f"/admin/tenants/tenant/{acme.tenant.id}/delete/", {"post": "yes"})
    assert set(in_engine()) == {str(rival.tenant.id)}


def test_the_live_numbers_add_up(desk, engine, acme, rival):
    change(desk, acme.tenant, reservation=16)
    data = desk.get(f"{LIVE}data/").json()
    [pool] = data["engines"]
    assert (pool["total"], pool["block_size"], pool["adds_up"]) == (64, 16, True)
    assert pool["free"] + sum(account["held"] for account in pool["accounts"]) == 64
    assert {account["name"]: account["reservation"] for account in pool["accounts"]} == {"Acme": 16, "Rival": 0}
    assert data["alerts"] == []


def test_a_pool_that_shrank_is_an_alert(desk, engine, acme):
    Quota.objects.filter(tenant=acme.tenant).update(reservation=100)
    acme.tenant.save()
    assert "reserve 100 blocks, but the pool has 64" in desk.get(f"{LIVE}data/").json()["alerts"][0]


def test_an_engine_that_is_gone_is_shown_as_such(desk, settings):
    assert desk.get(f"{LIVE}data/").json()["engines"] == [{"address": settings.PAGODA_ENGINES[0], "reachable": False}]
    assert desk.get(LIVE).status_code == desk.get("/admin/").status_code == 200


def test_pages_carry_the_admins_own_policy(desk, engine):
    page = desk.get(LIVE)
    policy = page["Content-Security-Policy"]
    assert "'unsafe-eval'" in policy
    assert "script-src 'self' 'unsafe-eval';" in policy


@pytest.mark.parametrize("path", ["/admin/", LIVE, f"{LIVE}data/", "/admin/pool/quota/", "/admin/tenants/tenant/"])
def test_only_operators_get_in(client, acme, path):
    assert client.get(path).status_code == 302
    for person in (acme.admin, acme.member):
        client.force_login(person)
        assert client.get(path)["Location"].startswith("/admin/login/")


def test_a_member_at_the_admins_door_is_told_who_is_signed_in(client, acme):
    client.force_login(acme.member)
    page = client.get("/admin/", follow=True).content.decode()
    assert f"You are signed in as {acme.member.email}, who is no operator." in page
    client.logout()
    assert "who is no operator" not in client.get("/admin/", follow=True).content.decode()


def test_the_dashboard_counts_answers_and_not_titles(desk, acme, rival):
    sizes = {"model": "echo", "prompt_tokens": 5, "cached_tokens": 0}
    for party, purpose, written in ((acme, "chat", 100), (rival, "api", 10), (acme, "title", 1)):
        UsageRecord.across_tenants.create(
            tenant=party.tenant, generation_id=uuid.uuid4(), purpose=purpose, output_tokens=written, **sizes
        )
    tiles = {str(tile["label"]): tile["value"] for tile in desk.get("/admin/").context["tiles"]}
    assert (tiles["Answers"], tiles["Tokens written"]) == ("2", "110")


def test_the_dashboard_tells_active_blocks_from_cached_ones(desk, engine, acme):
    [pool, *_] = desk.get("/admin/").context["tiles"]
    assert pool["value"] == "0"
    assert "of 64 blocks active; " in pool["note"]


def test_usage_that_was_not_summed_yet_says_when_it_will_be(desk):
    page = "/admin/usage/usagehour/"
    assert "Usage is summed by the hour." in desk.get(page).content.decode()
    schedule = CrontabSchedule.objects.create(minute="5")
    PeriodicTask.objects.create(name="roll up", task="usage.roll_up", crontab=schedule)
    assert re.search(r"the next time at \d+:05 [ap].m.", desk.get(page).content.decode())
    assert "Create a new item" not in desk.get(page).content.decode()
