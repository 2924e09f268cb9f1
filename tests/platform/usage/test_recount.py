"""Meters are brought in line with the ledger and the open holds."""

from datetime import timedelta

import pytest
from askers import Member, enter, key_of, limit, meter, reserve
from django.utils import timezone

from pagoda.usage.models import Meter, OpenHold
from pagoda.usage.recount import LOST, recount
from pagoda.usage.tasks import roll_up

pytestmark = pytest.mark.django_db


@pytest.fixture
def key(acme):
    """With a tenant that has a budget of its own, an answer in progress and a settled one; beside a rival's."""
    limit(acme.tenant, monthly_tokens=10_000)
    key = key_of(acme, monthly_tokens=1000)
    enter(acme, reserve(key).generation_id, api_key_id=key.pk)
    reserve(key, prompt=30)
    reserve(Member(acme.tenant), prompt=70)
    return key


def numbers(subject):
    row = meter(subject)
    return row.used, row.held, row.running


def test_what_is_right_stays(acme, rival, key):
    assert numbers(key) == (15, 40, 1)
    assert numbers(acme.tenant) == (15, 120, 2)
    assert recount() == 0


def test_what_is_wrong_is_mended(acme, rival, key):
    limit(rival.tenant, monthly_tokens=5)
    reserve(Member(rival.tenant), prompt=3, output=2)
    Meter.across_tenants.update(used=999, held=0, running=17)
    assert recount() == 3
    assert numbers(key) == (15, 40, 1)
    assert numbers(acme.tenant) == (15, 120, 2)
    assert numbers(rival.tenant) == (0, 5, 1)


def test_a_hold_that_nobody_settles_is_given_back(acme, rival, key):
    OpenHold.across_tenants.filter(api_key=key).update(created=timezone.now() - LOST - timedelta(minutes=1))
    roll_up()
    assert numbers(key) == (15, 0, 0)
    assert numbers(acme.tenant) == (15, 80, 1)
