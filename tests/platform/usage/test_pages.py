"""Where people see limits, budgets and totals: `/usage/` for tenants' admins, the tenant's page for operators."""

import html
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from askers import Member, enter, key_of, limit, reserve

from pagoda.tenants.models import AuditEntry, Membership, Role
from pagoda.usage.models import Meter, OpenHold, Price, TenantLimits, UsageRecord
from pagoda.usage.models.prices import first_open_day
from pagoda.usage.rollup import roll_up

pytestmark = pytest.mark.django_db


def this_month():
    return first_open_day()


def last_month():
    return (this_month() - timedelta(days=1)).replace(day=1)


def text_of(response):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode())))


def price(party, day, amount=1, currency="USD"):
    amounts = dict.fromkeys(("input", "cached_input", "output"), Decimal(amount))
    return Price.across_tenants.create(tenant=party.tenant, effective_from=day, currency=currency, **amounts)


def test_a_tenants_admin_sees_its_own_totals_alone(client, acme, rival):
    price(acme, this_month())
    price(rival, this_month(), 1000, "XAU")
    key = key_of(acme)
    enter(acme, prompt=1_234_000, output=0, user_id=acme.member.pk, model="small")
    enter(acme, prompt=1_000_000, output=1, api_key_id=key.pk)
    enter(rival, prompt=777_777, output=0, user_id=rival.member.pk, model="rivals-own")
    client.force_login(acme.admin)
    response = client.get("/usage/")
    shown = text_of(response)
    for part in ("1,234,000", acme.member.email, f"pgd_{key.prefix}", "small", "2.234001 USD", "1.234 USD"):
        assert part in shown, part
    for part in ("777,777", rival.member.email, "rivals-own", "XAU"):
        assert part not in shown, part
    assert response["Cache-Control"] == "no-store"


def test_members_and_strangers_do_not(client, acme, operator):
    assert client.get("/usage/").status_code == 302
    for person in (acme.member, operator):
        client.force_login(person)
        assert client.get("/usage/").status_code == 403
        assert client.get("/usage/export.csv").status_code == 403


def test_the_budget_of_the_month_is_shown(client, acme, rival):
    limit(acme.tenant, monthly_tokens=1000, requests_per_minute=60)
    enter(acme, prompt=300, output=50)
    reserve(Member(acme.tenant), prompt=100, output=50)
    client.force_login(acme.admin)
    shown = text_of(client.get("/usage/"))
    assert "350 of 1,000 tokens (50 %)" in shown
    assert "150 held" in shown
    assert "Requests per minute 60" in shown


def test_days_are_chosen_and_wrong_ones_explained(client, acme, rival):
    enter(acme, prompt=4321, output=0)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    UsageRecord.across_tenants.filter(tenant=acme.tenant).update(created=long_ago)
    client.force_login(acme.admin)
    assert "4,321" not in text_of(client.get("/usage/"))
    assert "4,321" in text_of(client.get("/usage/?first=2020-01-01&last=2020-01-01"))
    for query in ("first=2020-01-02&last=2020-01-01", "first=x", "last=9999-12-31"):
        assert client.get(f"/usage/?{query}").status_code == 422


def test_an_admin_of_several_tenants_chooses(client, acme, rival):
    Membership.across_tenants.create(tenant=rival.tenant, user=acme.admin, role=Role.ADMIN)
    enter(rival, prompt=5555, output=0)
    client.force_login(acme.admin)
    assert "5,555" not in text_of(client.get("/usage/?tenant=acme"))
    assert "5,555" in text_of(client.get("/usage/?tenant=rival"))


# --- the operators' admin ---------------------------------------------------------------------------------------------


def page(tenant, **extra):
    fields = {"name": tenant.name, "slug": tenant.slug, "is_active": "on", "cache_scope": "tenant"}
    quota = {"quota-0-tenant": str(tenant.id), "quota-0-reservation": 0, "quota-0-limit": "", "quota-0-weight": 1}
    for prefix in ("memberships", "invitations", "api_keys", "limits", "prices", "file_quota"):
        fields |= {f"{prefix}-TOTAL_FORMS": 0, f"{prefix}-INITIAL_FORMS": 0}
    return fields | quota | {"quota-TOTAL_FORMS": 1, "quota-INITIAL_FORMS": 1} | extra


def price_row(number, day, amount="1", **extra):
    amounts = dict.fromkeys(("input", "cached_input", "output"), amount)
    row = amounts | {"effective_from": day.isoformat(), "currency": "USD"} | extra
    return {f"prices-{number}-{name}": value for name, value in row.items()}


@pytest.fixture
def desk(client, operator):
    client.force_login(operator)
    return client


def test_the_tenants_page_shows_limits_budget_cost_and_keys(desk, acme, rival):
    limit(acme.tenant, monthly_tokens=10_000)
    price(acme, this_month(), 1000)
    key = key_of(acme, scopes=["batch"], tokens_per_minute=4242)
    enter(acme, prompt=2000, output=500)
    shown = text_of(desk.get(f"/admin/tenants/tenant/{acme.tenant.id}/change/"))
    assert "2,500 tokens, 0 held, of 10,000 (25 %) · 2.50 USD" in shown
    for part in (key.prefix, "batch", "4,242"):
        assert part in shown
    assert "no budget" in text_of(desk.get(f"/admin/tenants/tenant/{rival.tenant.id}/change/"))
    assert desk.get("/admin/tenants/tenant/add/").status_code == 200


def test_an_operator_sets_limits(desk, acme, rival, operator):
    path = f"/admin/tenants/tenant/{acme.tenant.id}/change/"
    values = {"limits-TOTAL_FORMS": 1, "limits-0-tenant": str(acme.tenant.id), "limits-0-monthly_tokens": "5000"}
    assert desk.post(path, page(acme.tenant, **values)).status_code == 302
    limits = TenantLimits.across_tenants.get()
    assert (limits.tenant, limits.monthly_tokens, limits.requests_per_minute) == (acme.tenant, 5000, None)
    entry = AuditEntry.across_tenants.get(what="limits.changed")
    assert (entry.who, entry.details["monthly_tokens"]) == (operator, 5000)
    stored = {"limits-INITIAL_FORMS": 1, "limits-0-id": str(limits.id), "limits-0-monthly_tokens": "0"}
    assert desk.post(path, page(acme.tenant, **values | stored)).status_code == 200
    assert desk.post(path, page(acme.tenant, **values | stored | {"limits-0-monthly_tokens": ""})).status_code == 302
    assert not TenantLimits.across_tenants.get().is_limited


def test_prices_are_added_and_past_ones_stay(desk, acme, rival):
    path = f"/admin/tenants/tenant/{acme.tenant.id}/change/"
    closed = price(acme, last_month(), 7)
    enter(acme, prompt=1_000_000, output=0)
    ids = {"id": str(closed.id), "tenant": str(acme.tenant.id)}
    changed = price_row(0, last_month(), "99", DELETE="on", **ids) | {
        "prices-TOTAL_FORMS": 1,
        "prices-INITIAL_FORMS": 1,
    }
    desk.post(path, page(acme.tenant, **changed))
    closed.refresh_from_db()
    assert closed.input == 7
    added = price_row(1, this_month(), "3", tenant=str(acme.tenant.id)) | {"prices-TOTAL_FORMS": 2}
    assert desk.post(path, page(acme.tenant, **changed | added)).status_code == 302
    assert [str(row.input.normalize()) for row in Price.across_tenants.order_by("effective_from")] == ["7", "3"]
    assert AuditEntry.across_tenants.get(what="price.changed").details["input"] == "3"
    backdated = price_row(0, last_month() - timedelta(days=1), "1", tenant=str(rival.tenant.id))
    refused = desk.post(
        f"/admin/tenants/tenant/{rival.tenant.id}/change/",
        page(rival.tenant, **backdated | {"prices-TOTAL_FORMS": 1}),
    )
    assert "Prices of past months do not change" in text_of(refused)


def test_an_open_price_can_be_changed_and_removed(desk, acme, rival):
    path = f"/admin/tenants/tenant/{acme.tenant.id}/change/"
    stored = price(acme, this_month(), 7)
    forms = {"prices-TOTAL_FORMS": 1, "prices-INITIAL_FORMS": 1}
    ids = {"id": str(stored.id), "tenant": str(acme.tenant.id)}
    desk.post(path, page(acme.tenant, **forms | price_row(0, this_month(), "8", **ids)))
    stored.refresh_from_db()
    assert stored.input == 8
    desk.post(path, page(acme.tenant, **forms | price_row(0, this_month(), "8", DELETE="on", **ids)))
    assert not Price.across_tenants.exists()


def test_the_usage_page_shows_costs_beside_totals(desk, acme, rival):
    price(acme, this_month(), 1)
    price(rival, this_month(), 2, "KRW")
    enter(acme, prompt=1_000_000, output=500_000)
    enter(rival, prompt=1_000_000, output=500_000)
    roll_up()
    shown = text_of(desk.get("/admin/usage/usagehour/"))
    assert "1.50 USD" in shown
    assert "3.00 KRW" in shown
    assert "KRW" not in text_of(desk.get(f"/admin/usage/usagehour/?tenant__id__exact={acme.tenant.id}"))


def test_a_wrong_export_is_refused(desk):
    for query in ("tenant=everybody", "first=never"):
        assert desk.get(f"/admin/usage/usagerecord/export.csv?{query}").status_code == 422


def test_a_deleted_tenant_takes_its_limits_prices_and_holds_along(desk, acme, rival):
    for party in (acme, rival):
        limit(party.tenant, monthly_tokens=1000)
        price(party, this_month())
        reserve(key_of(party, requests_per_minute=5))
    path = f"/admin/tenants/tenant/{acme.tenant.id}/delete/"
    assert desk.get(path).status_code == 200
    assert desk.post(path, {"post": "yes"}).status_code == 302
    for kind in (TenantLimits, Price, OpenHold):
        assert [row.tenant_id for row in kind.across_tenants.all()] == [rival.tenant.id]
    assert {row.tenant_id for row in Meter.across_tenants.all()} == {rival.tenant.id}


def test_records_are_filtered_without_reading_the_ledger(desk, acme, rival, django_assert_max_num_queries):
    enter(acme, prompt=1111, output=0, model="small", purpose="chat")
    enter(rival, prompt=2222, output=0, model="large", purpose="batch")
    roll_up()
    for query, shown, hidden in (
        ("model=small", "1111", "2222"),
        ("purpose=batch", "2222", "1111"),
        (f"tenant__id__exact={acme.tenant.id}", "1111", "2222"),
        ("created_to=2020-01-02", "Clear all filters", "1111"),
        (f"created_from={this_month()}&created_to={datetime.now(UTC).date()}", "1111", "3333"),
        ("created_from=never", "Enter a valid date", "1111"),
    ):
        text = text_of(desk.get(f"/admin/usage/usagerecord/?{query}"))
        assert shown in text, query
        assert hidden not in text, query
    with django_assert_max_num_queries(12) as queries:
        desk.get("/admin/usage/usagerecord/")
    of_the_ledger = [query["sql"] for query in queries if 'FROM "usage_usagerecord"' in query["sql"]]
    assert not [sql for sql in of_the_ledger if "DISTINCT" in sql or "trunc" in sql.lower()]


def test_the_latest_month_of_every_tenant_is_told(desk, acme, rival):
    for party in (acme, rival):
        enter(party, prompt=1234, output=0)
    long_ago = datetime.now(UTC) - timedelta(days=60)
    enter(acme, prompt=4321, output=0)
    UsageRecord.across_tenants.filter(prompt_tokens=4321).update(created=long_ago)
    roll_up()
    days = desk.get("/admin/usage/usagehour/").context_data["days"]
    assert sorted((day["tenant"], day["prompt_tokens"]) for day in days) == [("Acme", 1234), ("Rival", 1234)]
    until = (long_ago + timedelta(days=1)).date().isoformat()
    days = desk.get(f"/admin/usage/usagehour/?hour_to={until}").context_data["days"]
    assert [(day["tenant"], day["prompt_tokens"]) for day in days] == [("Acme", 4321)]


def test_a_page_of_many_keys_stays_short(client, acme, rival):
    for number in range(120):
        enter(acme, prompt=1, output=0, model=f"model-{number}", api_key_id=key_of(acme).pk)
    enter(acme, prompt=1, output=0, user_id=acme.member.pk)
    client.force_login(acme.admin)
    response = client.get("/usage/")
    keys = response.context["keys"]
    assert len(keys) == 100
    assert sum(total.generations for total in keys) == response.context["totals"].together.generations == 121
