"""Hours are the sums of the records: whenever, and however often, they are computed."""

import re
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction

from pagoda.usage.models import UsageHour, UsageRecord
from pagoda.usage.rollup import roll_up
from pagoda.usage.tasks import roll_up as roll_up_task

pytestmark = pytest.mark.django_db


@pytest.fixture
def noon():
    return datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


def settle(party, when, prompt=10, cached=4, output=5, model="echo"):
    numbers = {"prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": output}
    return UsageRecord.across_tenants.create(
        tenant=party.tenant, generation_id=uuid.uuid4(), model=model, purpose="chat", created=when, **numbers
    )


def hours(party):
    rows = UsageHour.across_tenants.filter(tenant=party.tenant).order_by("hour", "model")
    return [
        (row.hour, row.model, row.generations, row.prompt_tokens, row.cached_tokens, row.output_tokens) for row in rows
    ]


def test_records_are_summed_by_tenant_model_and_hour(acme, rival, noon):
    settle(acme, noon)
    settle(acme, noon + timedelta(minutes=59), prompt=1, cached=0, output=1)
    settle(acme, noon + timedelta(minutes=60))
    settle(acme, noon, model="other")
    settle(rival, noon, prompt=100)
    assert roll_up() == 4
    assert hours(acme) == [
        (noon, "echo", 2, 11, 4, 6),
        (noon, "other", 1, 10, 4, 5),
        (noon + timedelta(hours=1), "echo", 1, 10, 4, 5),
    ]
    assert hours(rival) == [(noon, "echo", 1, 100, 4, 5)]


def test_running_again_changes_nothing(acme, noon):
    settle(acme, noon)
    roll_up_task()
    first = hours(acme)
    roll_up_task()
    roll_up()
    assert hours(acme) == first


def test_rows_that_come_late_are_counted(acme, noon):
    settle(acme, noon)
    roll_up()
    settle(acme, noon)
    roll_up()
    assert hours(acme) == [(noon, "echo", 2, 20, 8, 10)]


def test_an_earlier_time_can_be_computed_again(acme, noon):
    long_ago = noon - timedelta(days=30)
    settle(acme, noon)
    roll_up()
    settle(acme, long_ago)
    assert roll_up() == 1
    assert roll_up(since=long_ago) == 2


def test_a_worker_that_was_away_catches_up(acme, noon):
    settle(acme, noon - timedelta(days=30))
    assert roll_up() == 1
    settle(acme, noon - timedelta(days=20))
    settle(acme, noon)
    assert roll_up() == 3


def test_a_generation_is_billed_once(acme, rival, noon):
    row = settle(acme, noon)
    for party in (acme, rival):
        with pytest.raises(IntegrityError), transaction.atomic():
            UsageRecord.across_tenants.create(
                tenant=party.tenant,
                generation_id=row.generation_id,
                model="echo",
                purpose="chat",
                prompt_tokens=1,
                cached_tokens=0,
                output_tokens=1,
            )


def test_the_schedule_names_tasks_that_exist(settings):
    from pagoda.celery import app

    app.loader.import_default_modules()
    assert {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} <= set(app.tasks)


def test_the_admin_shows_totals_by_tenant_and_day(acme, rival, noon, client, operator):
    settle(acme, noon, prompt=1234, cached=617)
    settle(rival, noon, prompt=100)
    roll_up()
    client.force_login(operator)
    page = client.get("/admin/usage/usagehour/").content.decode()
    assert "1,234" in page
    assert "617 (50 %)" in page
    theirs = client.get(f"/admin/usage/usagehour/?tenant__id__exact={rival.tenant.id}").content.decode()
    assert "617" not in re.sub(r"<[^>]+>", " ", theirs)  # ids in addresses have any digits
    assert client.get("/admin/usage/usagerecord/").status_code == 200
