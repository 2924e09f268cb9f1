"""Totals and costs: whichever way the ledger is summed, it is the same ledger."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from askers import key_of
from django.core.exceptions import ValidationError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagoda.tenants.scoping import TenantScopeRequired, tenant_scope
from pagoda.usage.models import Price, SummedUntil, UsageHour, UsageRecord, UsageSum
from pagoda.usage.models.prices import first_open_day
from pagoda.usage.pricing import PriceLists, add, as_text
from pagoda.usage.rollup import roll_up
from pagoda.usage.sums import SETTLED, between, keep_sums
from pagoda.usage.totals import most, totals

pytestmark = pytest.mark.django_db

FIRST = datetime(2025, 3, 1, tzinfo=UTC)
NUMBERS = ("generations", "prompt_tokens", "cached_tokens", "output_tokens")


def record(party, when=FIRST, *, user=None, key=None, model="echo", prompt=10, cached=4, output=5):
    return UsageRecord.across_tenants.create(
        tenant=party.tenant, generation_id=uuid.uuid4(), user=user, api_key=key, model=model, purpose="api",
        prompt_tokens=prompt, cached_tokens=cached, output_tokens=output, created=when,
    )  # fmt: skip


def price(party, day, dollars=("1", "0.5", "2"), currency="USD"):
    fields = dict(zip(("input", "cached_input", "output"), map(Decimal, dollars), strict=True))
    return Price.across_tenants.create(tenant=party.tenant, effective_from=day, currency=currency, **fields)


def summed(party, first=date(2025, 1, 15), last=date(2025, 5, 1)):
    with tenant_scope(party.tenant.id):
        return totals(first, last, PriceLists(Price.objects.all()))


rows = st.lists(
    st.tuples(
        st.integers(0, 40 * 24 * 3600),
        st.sampled_from(["member", "admin", "first key", "second key", "nobody"]),
        st.sampled_from(["echo", "other"]),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    min_size=1,
    max_size=25,
)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(rows=rows, summed_at=st.integers(-1, 45 * 24), late=st.integers(0, 3))
def test_every_total_is_the_sum_of_its_records(acme, rival, rows, summed_at, late):
    """Whenever the past was summed, and whichever records came after that."""
    for kind in (UsageRecord, UsageHour, UsageSum, Price):
        kind.across_tenants.all().delete()
    SummedUntil.objects.all().delete()
    price(acme, date(2025, 3, 5))
    price(acme, date(2025, 3, 20), ("3", "0.25", "7"), "KRW")
    keys = {"first key": key_of(acme), "second key": key_of(acme)}
    people = {"member": acme.member, "admin": acme.admin}
    record(rival, FIRST, prompt=999)
    now = FIRST + timedelta(hours=summed_at)
    after = [row for row in rows if FIRST + timedelta(seconds=row[0]) >= now - SETTLED]
    before = [row for row in rows if row not in after]
    for part in (before, after):
        for second, who, model, prompt, output in part:
            when = FIRST + timedelta(seconds=second)
            fields = {"prompt": prompt, "cached": prompt // 3, "output": output}
            record(acme, when, user=people.get(who), key=keys.get(who), model=model, **fields)
        if part is before:
            for _again in range(1 + late):
                keep_sums(now - timedelta(days=2), now)
    by_hand = (
        len(rows),
        sum(row[3] for row in rows),
        sum(row[3] // 3 for row in rows),
        sum(row[4] for row in rows),
    )
    found = summed(acme)
    for part in ([found.together], found.members, found.keys, found.models, found.days):
        assert tuple(sum(getattr(total, name) for total in part) for name in NUMBERS) == by_hand
        together = {
            currency: sum((total.costs.get(currency, Decimal(0)) for total in part), Decimal(0))
            for currency in ("USD", "KRW")
        }
        assert together == {"USD": Decimal(0), "KRW": Decimal(0)} | found.together.costs
    assert found.together.costs == costs_by_hand(acme)
    assert len(found.members) == len({row[1] if row[1] in people else row[1] == "nobody" for row in rows})
    roll_up(since=FIRST, now=FIRST + timedelta(days=46))
    hours = UsageHour.across_tenants.filter(tenant=acme.tenant)
    assert tuple(sum(getattr(hour, name) for hour in hours) for name in NUMBERS) == by_hand
    assert summed(acme) == found


def costs_by_hand(party):
    """Record by record."""
    costs = {}
    prices = PriceLists(Price.across_tenants.all())
    for row in UsageRecord.across_tenants.filter(tenant=party.tenant):
        numbers = (row.prompt_tokens, row.cached_tokens, row.output_tokens)
        add(costs, prices.cost(party.tenant.id, row.created.astimezone(UTC).date(), *numbers))
    return costs


def test_each_day_is_paid_by_the_prices_that_held(acme, rival):
    price(acme, date(2025, 3, 1))
    price(acme, date(2025, 3, 15), ("10", "5", "20"))
    price(rival, date(2025, 1, 1), ("1000", "1000", "1000"))
    midnight = datetime(2025, 3, 15, tzinfo=UTC)
    for when in (midnight - timedelta(microseconds=1), midnight):
        record(acme, when, prompt=1_000_000, cached=400_000, output=500_000)
    days = summed(acme).days
    assert [day.name for day in days] == ["2025-03-14", "2025-03-15"]
    assert days[0].costs == {"USD": Decimal("0.6") + Decimal("0.2") + Decimal("1")}
    assert days[1].costs == {"USD": Decimal(18)}
    record(acme, datetime(2025, 2, 28, 23, tzinfo=UTC))
    assert summed(acme).days[0].costs == {}


def test_a_new_price_changes_no_past_month(acme, rival):
    this_month = first_open_day()
    last_month = this_month - timedelta(days=1)
    Price(tenant=acme.tenant, effective_from=this_month, input=1, cached_input=1, output=1, currency="USD").full_clean()
    backdated = Price(tenant=acme.tenant, effective_from=last_month, input=1, cached_input=1, output=1, currency="USD")
    with pytest.raises(ValidationError, match="past months"):
        backdated.full_clean()
    open_price = price(acme, this_month)
    open_price.effective_from = last_month
    with pytest.raises(ValidationError, match="past months"):
        open_price.full_clean()


def test_negative_prices_are_refused(acme, rival):
    wrong = Price(tenant=acme.tenant, effective_from=date(2099, 1, 1), input=-1, cached_input=1, output=1, currency="X")
    with pytest.raises(ValidationError):
        wrong.full_clean()


def test_costs_are_told_exactly(acme, rival):
    assert as_text({}) == "—"
    assert as_text({"USD": Decimal("0.000123")}) == "0.000123 USD"
    assert as_text({"USD": Decimal("1.5"), "KRW": Decimal("12345.6")}) == "12,345.60 KRW, 1.50 USD"
    assert as_text({"USD": Decimal("0")}) == "0.00 USD"
    assert as_text({"USD": Decimal("10")}) == "10.00 USD"


def test_the_last_day_is_included(acme, rival):
    record(acme, FIRST - timedelta(seconds=1))
    record(acme, FIRST)
    record(acme, FIRST + timedelta(hours=23, minutes=59))
    record(acme, FIRST + timedelta(days=1))
    with tenant_scope(acme.tenant.id):
        assert between(UsageRecord.objects.all(), FIRST.date(), FIRST.date()).count() == 2
    for _before_and_after in range(2):
        assert summed(acme, FIRST.date(), FIRST.date()).together.generations == 2
        roll_up()


def test_nothing_is_summed_outside_a_tenant(acme, rival):
    with pytest.raises(TenantScopeRequired):
        UsageRecord.objects.all()
    with pytest.raises(TenantScopeRequired):
        Price.objects.all()


def test_what_has_no_member_or_no_key_says_what_it_is(acme, rival):
    key = key_of(acme)
    record(acme, user=acme.member)
    record(acme, key=key)
    record(acme)
    found = summed(acme)
    gone = "accounts and keys that are gone"
    assert {total.name for total in found.members} == {acme.member.email, "API keys", gone}
    assert {total.name for total in found.keys} == {str(key), "people, in the chat", gone}


def test_a_long_list_is_cut_and_still_adds_up(acme, rival):
    for number in range(5):
        record(acme, model=f"model {number}", prompt=10 + number)
    rows = summed(acme).models
    shown = most(rows, 3)
    assert [total.name for total in shown[:2]] == ["model 4", "model 3"]
    assert "3 others" in shown[2].name
    assert sum(total.tokens for total in shown) == sum(total.tokens for total in rows) == 85
    assert most(rows, 5) == rows
