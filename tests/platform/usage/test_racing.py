"""Racing requests at the edge of a limit: never one token, or one generation, too many."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from askers import Member, enter, key_of, limit, meter, reserve
from django.db import connection

from pagoda.usage.admission import LimitReached
from pagoda.usage.models import OpenHold, UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)


def racers():
    """As many as the database lets race: SQLite has one writer at a time."""
    return 50 if connection.vendor == "postgresql" else 12


def race(works):
    """Begin all at the same moment, each on a connection of its own; what each returned, or the LimitReached."""
    start = threading.Barrier(len(works))

    def run(work):
        start.wait()
        try:
            return work()
        except LimitReached as reached:
            return reached
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


def admitted(results):
    return [each for each in results if not isinstance(each, LimitReached)]


def test_racing_requests_at_the_edge_of_a_budget_overspend_by_nothing(acme, rival):
    budget = 20 * racers() // 2 + 5
    limit(acme.tenant, monthly_tokens=budget)
    limit(rival.tenant, monthly_tokens=20 * racers())
    asker, other = Member(acme.tenant), Member(rival.tenant)
    results = race([partial(reserve, asker)] * racers())
    assert len(admitted(results)) == budget // 20
    assert meter(acme.tenant).held == 20 * (budget // 20)
    assert len(admitted(race([partial(reserve, other)] * racers()))) == racers()


def test_keys_of_one_tenant_race_for_its_budget_and_for_their_own(acme, rival):
    limit(acme.tenant, monthly_tokens=20 * (racers() - 2))
    keys = [key_of(acme, monthly_tokens=20 * 3), key_of(acme)]
    results = race([partial(reserve, keys[number % 2]) for number in range(racers())])
    held = OpenHold.across_tenants.filter(api_key=keys[0]).count()
    assert held <= 3
    assert meter(keys[0]).held == 20 * held
    assert meter(acme.tenant).held == 20 * len(admitted(results)) <= 20 * (racers() - 2)
    assert len(admitted(results)) == min(racers() // 2, racers() - 2 - held) + held


def test_answers_without_a_bound_share_what_is_left(acme, rival):
    key = key_of(acme, monthly_tokens=1000)
    results = race([partial(reserve, key, output=None, context_left=300)] * racers())
    assert sum(hold.tokens for hold in admitted(results)) == meter(key).held <= 1000
    assert sorted({hold.max_output_tokens for hold in admitted(results)}) == [60, 300]


def test_racing_settlements_are_counted_once_each(acme, rival):
    key = key_of(acme, monthly_tokens=10_000)
    holds = [reserve(key) for _ in range(racers() // 2)]
    works = [partial(enter, acme, hold.generation_id, api_key_id=key.pk) for hold in holds for _ in range(2)]
    assert sum(race(works)) == len(holds)
    assert (meter(key).used, meter(key).held, meter(key).running) == (15 * len(holds), 0, 0)


def test_what_is_spent_never_passes_the_budget_while_calls_come_and_go(acme, rival):
    limit(acme.tenant, monthly_tokens=301)
    key = key_of(acme, monthly_tokens=250)

    def call():
        while True:
            hold = reserve(key, prompt=5, output=10)
            enter(acme, hold.generation_id, prompt=5, output=7, api_key_id=key.pk)

    race([call] * racers())
    spent = sum(row.prompt_tokens + row.output_tokens for row in UsageRecord.across_tenants.filter(tenant=acme.tenant))
    assert spent == meter(acme.tenant).used == meter(key).used
    assert 250 - 15 < spent <= 250
    assert meter(key).held == 0


def test_racing_requests_pass_no_rate_and_no_number_at_a_time(acme, rival):
    rate, at_once = key_of(acme, requests_per_minute=5), key_of(acme, concurrent_generations=4)
    assert len(admitted(race([partial(reserve, rate)] * racers()))) == 5
    assert len(admitted(race([partial(reserve, at_once)] * racers()))) == 4
