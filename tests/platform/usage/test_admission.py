"""Limits: what is held before a generation runs, and given back after it."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from askers import Member, enter, key_of, limit, meter, reserve
from django.db import transaction

from pagoda.tenants.scoping import CrossTenantAccess, TenantScopeRequired, tenant_scope
from pagoda.usage import admission
from pagoda.usage.admission import Asked, LimitReached
from pagoda.usage.models import Meter, OpenHold

pytestmark = pytest.mark.django_db

NOON = datetime(2031, 3, 14, 12, 0, tzinfo=UTC)


def refused(*arguments, **keywords):
    with pytest.raises(LimitReached) as caught:
        reserve(*arguments, **keywords)
    return caught.value


def test_without_limits_nothing_is_held(acme):
    hold = reserve(key_of(acme), output=None, context_left=77)
    assert (hold.max_output_tokens, hold.tokens) == (77, 0)
    assert not Meter.across_tenants.exists()
    assert not OpenHold.across_tenants.exists()


def test_requests_per_minute_hold_for_any_sixty_seconds(acme, rival):
    key, other = key_of(acme, requests_per_minute=2), key_of(acme)
    reserve(key, now=NOON)
    reserve(key, now=NOON + timedelta(seconds=40))
    reached = refused(key, now=NOON + timedelta(seconds=59.9))
    assert (reached.kind, reached.limit, reached.used, reached.of) == ("requests", 2, 2, "key")
    again = NOON + timedelta(seconds=59.9 + reached.retry_after_s)
    assert again - NOON == timedelta(seconds=60)
    reserve(key, now=again)
    assert refused(key, now=again).kind == "requests"
    reserve(other, now=again)
    reserve(key_of(rival, requests_per_minute=2), now=again)


def test_the_tighter_of_tenant_and_key_holds(acme, rival):
    limit(acme.tenant, requests_per_minute=3)
    limit(rival.tenant, requests_per_minute=3)
    first, second = key_of(acme, requests_per_minute=2), key_of(acme)
    reserve(first, now=NOON)
    reserve(first, now=NOON)
    assert refused(first, now=NOON).of == "key"
    hold = reserve(second, now=NOON)
    assert (hold.rates.requests.limit, hold.rates.requests.remaining) == (3, 0)
    reached = refused(Member(acme.tenant), now=NOON)
    assert (reached.of, reached.used) == ("tenant", 3)
    reserve(Member(rival.tenant), now=NOON)


def test_tokens_per_minute_count_the_bound_and_then_what_was_used(acme, rival):
    key = key_of(acme, tokens_per_minute=100)
    first = reserve(key, prompt=20, output=60, now=NOON)
    reached = refused(key, prompt=20, output=10, now=NOON)
    assert (reached.kind, reached.used) == ("tokens", 80)
    with tenant_scope(acme.tenant.id):
        admission.settle(first.generation_id, 20, 0, 5, now=NOON)
    assert reserve(key, prompt=20, output=10, now=NOON).rates.tokens.remaining == 45


def test_an_answer_without_a_bound_counts_against_the_minute_when_it_is_there(acme, rival):
    key = key_of(acme, tokens_per_minute=100)
    hold = reserve(key, prompt=10, output=None, context_left=5000, now=NOON)
    assert hold.max_output_tokens == 5000
    with tenant_scope(acme.tenant.id):
        admission.settle(hold.generation_id, 10, 0, 400, now=NOON + timedelta(seconds=1))
    assert refused(key, prompt=1, output=1, now=NOON + timedelta(seconds=2)).used == 410


def test_what_can_never_fit_says_so(acme, rival):
    assert refused(key_of(acme, tokens_per_minute=100), prompt=90, output=11).retry_after_s is None
    assert refused(key_of(acme, monthly_tokens=100), prompt=90, output=11).retry_after_s is None


def test_concurrent_generations(acme, rival):
    limit(acme.tenant, concurrent_generations=2)
    member, key = Member(acme.tenant), key_of(acme)
    first, _ = reserve(member), reserve(key)
    reached = refused(key)
    assert (reached.kind, reached.limit, reached.used) == ("concurrent", 2, 2)
    enter(acme, first.generation_id)
    last = reserve(key)
    assert refused(member).kind == "concurrent"
    with tenant_scope(acme.tenant.id):
        assert admission.release(last.generation_id)
    reserve(member)


def test_a_budget_holds_the_most_and_settles_to_what_was_used(acme, rival):
    key = key_of(acme, monthly_tokens=1000)
    hold = reserve(key, prompt=100, output=300, answers=2)
    assert hold.tokens == 700
    reached = refused(key, prompt=100, output=201)
    assert (reached.kind, reached.limit, reached.used) == ("budget", 1000, 700)
    enter(acme, hold.generation_id, prompt=100, output=50, api_key_id=key.pk)
    assert (meter(key).used, meter(key).held) == (150, 0)
    reserve(key, prompt=100, output=750)
    assert refused(key, prompt=1, output=1).kind == "budget"


def test_without_a_bound_an_answer_gets_the_lesser_of_context_and_budget(acme, rival):
    key = key_of(acme, monthly_tokens=1000)
    assert reserve(key, prompt=100, output=None, context_left=80).max_output_tokens == 80
    hold = reserve(key, prompt=20, output=None, context_left=5000, answers=2)
    assert (hold.max_output_tokens, hold.tokens) == (400, 820)
    assert refused(key, prompt=1, output=None, context_left=5000).kind == "budget"


def test_a_new_month_begins_with_what_is_still_held(acme, rival):
    key = key_of(acme, monthly_tokens=100)
    late = datetime(2031, 3, 31, 23, 59, 59, tzinfo=UTC)
    first = reserve(key, prompt=50, output=50, now=late)
    reached = refused(key, prompt=1, output=1, now=late)
    assert reached.retry_after_s == 1.0
    april = late + timedelta(seconds=2)
    assert refused(key, prompt=1, output=1, now=april).used == 100
    with tenant_scope(acme.tenant.id):
        admission.settle(first.generation_id, 50, 0, 10, now=april)
    assert reserve(key, prompt=20, output=20, now=april).tokens == 40
    assert refused(key, prompt=1, output=0, now=april).used == 100


def test_a_budget_given_in_the_middle_of_a_month_knows_what_was_used(acme, rival):
    key = key_of(acme)
    enter(acme, prompt=60, output=20, api_key_id=key.pk)
    enter(acme, prompt=60, output=20)
    enter(rival, prompt=500, output=500)
    key.monthly_tokens = 100
    key.save()
    limit(acme.tenant, monthly_tokens=200)
    reached = refused(key, prompt=21, output=0)
    assert (reached.of, reached.used) == ("key", 80)
    assert refused(Member(acme.tenant), prompt=41, output=0).used == 160


def test_what_held_nothing_counts_as_well(acme, rival):
    limit(acme.tenant, monthly_tokens=100)
    enter(acme, reserve(Member(acme.tenant)).generation_id, prompt=10, output=10)
    enter(acme, prompt=20, output=10, purpose="title")
    assert meter(acme.tenant).used == 50


def test_settling_and_entering_twice_changes_nothing(acme, rival):
    key = key_of(acme, monthly_tokens=1000)
    hold = reserve(key)
    assert enter(acme, hold.generation_id, api_key_id=key.pk)
    first = (meter(key).used, meter(key).held, meter(key).running)
    assert not enter(acme, hold.generation_id, api_key_id=key.pk)
    with tenant_scope(acme.tenant.id):
        assert not admission.settle(hold.generation_id, 10, 0, 5)
        assert not admission.release(hold.generation_id)
    assert (meter(key).used, meter(key).held, meter(key).running) == first == (15, 0, 0)


def test_an_answer_of_nothing_gives_its_hold_back_and_writes_no_record(acme, rival):
    key = key_of(acme, monthly_tokens=1000, requests_per_minute=1)
    hold = reserve(key)
    assert not enter(acme, hold.generation_id, prompt=0, output=0, api_key_id=key.pk)
    assert (meter(key).used, meter(key).held, meter(key).running) == (0, 0, 0)
    assert refused(key).kind == "requests", "it was asked all the same"


def test_a_released_request_was_never_asked(acme, rival):
    key = key_of(acme, requests_per_minute=1, tokens_per_minute=100)
    for _ in range(3):
        hold = reserve(key, now=NOON)
        with tenant_scope(acme.tenant.id):
            admission.release(hold.generation_id, now=NOON)
            state = admission.rate_state(key, now=NOON)
        assert (state.requests.remaining, state.tokens.remaining) == (1, 100)


def test_rates_are_told_without_asking(acme, rival):
    key = key_of(acme, requests_per_minute=10, tokens_per_minute=1000)
    limit(acme.tenant, requests_per_minute=5)
    reserve(key, prompt=100, output=0, now=NOON)
    with tenant_scope(acme.tenant.id):
        state = admission.rate_state(key, now=NOON)
    assert (state.requests.limit, state.requests.remaining) == (5, 4)
    assert (state.tokens.limit, state.tokens.remaining) == (1000, 900)
    assert state.requests.reset_s == 60


def test_it_works_only_in_the_askers_own_scope(acme, rival):
    key = key_of(acme, requests_per_minute=1)
    asked = Asked(prompt_tokens=1, max_output_tokens=1)
    with pytest.raises(TenantScopeRequired):
        admission.reserve(key, asked, generation_id=uuid.uuid4())
    with tenant_scope(rival.tenant.id), pytest.raises(CrossTenantAccess):
        admission.reserve(key, asked, generation_id=uuid.uuid4())
    limit(acme.tenant, concurrent_generations=1)
    with tenant_scope(rival.tenant.id), pytest.raises(CrossTenantAccess):
        admission.reserve(Member(acme.tenant), asked, generation_id=uuid.uuid4())
    hold = reserve(key)
    with tenant_scope(rival.tenant.id):
        assert not admission.release(hold.generation_id)
    assert OpenHold.across_tenants.count() == 1


def test_what_is_refused_does_not_end_the_callers_transaction(acme, rival):
    key = key_of(acme, concurrent_generations=1)
    with transaction.atomic():
        reserve(key)
        assert refused(key).kind == "concurrent"
        enter(rival)
    assert meter(key).running == 1


def test_a_meter_that_was_deleted_by_hand_is_made_again(acme, rival):
    key = key_of(acme, monthly_tokens=100)
    enter(acme, reserve(key).generation_id, api_key_id=key.pk)
    Meter.across_tenants.all().delete()
    reserve(key)
    assert (meter(key).used, meter(key).held) == (15, 20)


def test_admission_costs_few_queries(acme, rival, django_assert_max_num_queries):
    key = key_of(acme)
    with transaction.atomic(), django_assert_max_num_queries(1):
        reserve(key)
    limit(acme.tenant, monthly_tokens=10_000)
    key = key_of(acme, requests_per_minute=10)
    reserve(key)
    reserve(key)
    with transaction.atomic(), django_assert_max_num_queries(5):
        reserve(key)
