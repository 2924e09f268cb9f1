"""What became of webhooks, told to operators: every attempt, in the admin, beside a rival's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.contrib import admin
from django.test import Client
from django.utils import timezone

from pagoda.batches import webhooks
from pagoda.batches.models import Batch, Webhook, WebhookAttempt, WebhookDelivery
from pagoda.tenants.scoping import tenant_scope


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_app, "send_task", lambda name: None)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, str]]:
    """What becomes of the next attempts, one after the other: whether they are taken in, and their result."""
    given: list[tuple[bool, str]] = []
    monkeypatch.setattr(webhooks, "AT_ONCE", 1)
    monkeypatch.setattr(webhooks, "_send", lambda delivery, now: webhooks._Answer(*given.pop(0)))
    return given


@pytest.fixture
def desk(operator: Any) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def told(party: Any, url: str) -> WebhookDelivery:
    """A delivery that is due, to a webhook of its own."""
    with tenant_scope(party.tenant.pk):
        webhook = Webhook.objects.create(tenant=party.tenant, url=url)
        batch = Batch.objects.create(
            tenant=party.tenant,
            endpoint="/v1/completions",
            input_file=party.tenant.pk,
            expires=timezone.now(),
            status="completed",
            finished=timezone.now(),
        )
        webhooks.announce(batch)
        delivery = WebhookDelivery.objects.get(webhook=webhook)
        delivery.webhook = webhook
        return delivery


def page(desk: Client, address: str) -> str:
    answer = desk.get(address)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def test_every_attempt_is_kept_with_its_result(acme: Any, rival: Any, answers: list[tuple[bool, str]]) -> None:
    ours, theirs = told(acme, "https://ours.example/"), told(rival, "https://theirs.example/")
    now = timezone.now()
    WebhookDelivery.across_tenants.filter(pk=theirs.pk).update(due=now + timedelta(hours=1))
    answers += [(False, "HTTP 500"), (False, "The host's address is not public."), (True, "HTTP 204")]
    for seconds in (0, 5, 60):
        assert webhooks.send_due(now + timedelta(seconds=seconds)) == 1
    with tenant_scope(acme.tenant.pk):
        rows = list(WebhookAttempt.objects.filter(delivery=ours).values_list("number", "result"))
        assert rows == [(1, "HTTP 500"), (2, "The host's address is not public."), (3, "HTTP 204")]
        assert all(row.ended >= row.begun for row in WebhookAttempt.objects.all())
    with tenant_scope(rival.tenant.pk):
        assert not WebhookAttempt.objects.exists()
    WebhookDelivery.across_tenants.update(created=now - timedelta(days=31), due=None)
    webhooks.forget_old()
    assert not WebhookAttempt.across_tenants.exists()


def test_a_slow_attempt_that_fails_takes_nothing_back_from_the_next_one(acme: Any) -> None:
    """It ends after the next one has begun: neither its own result nor its own next time is the delivery's any more."""
    due, now = told(acme, "https://ours.example/"), timezone.now()
    slow = webhooks._claim(due, now)
    due.attempts = 1
    later = now + timedelta(seconds=5)
    quick = webhooks._claim(due, later)
    assert slow is not None
    assert quick is not None
    webhooks._note(slow, webhooks._Answer(False, "no answer within 5 seconds"), later)
    row = WebhookDelivery.across_tenants.get()
    assert (row.attempts, row.result, row.due) == (2, "", later + timedelta(seconds=webhooks.BACKOFF_S[1]))
    webhooks._note(quick, webhooks._Answer(True, "HTTP 200"), later)
    webhooks._note(slow, webhooks._Answer(False, "no answer within 5 seconds"), later)
    row = WebhookDelivery.across_tenants.get()
    assert (row.due, row.result, row.delivered) == (None, "HTTP 200", later)
    results = WebhookAttempt.across_tenants.order_by("number").values_list("result", flat=True)
    assert list(results) == ["no answer within 5 seconds", "HTTP 200"]


def test_deliveries_are_found_from_the_sidebar_and_from_their_webhooks_page(
    acme: Any, rival: Any, desk: Client, answers: list[tuple[bool, str]]
) -> None:
    ours, theirs = told(acme, "https://ours.example/"), told(rival, "https://theirs.example/")
    answers += [(False, "HTTP 503"), (False, "HTTP 410")]
    webhooks.send_due()
    assert 'href="/admin/batches/webhookdelivery/"' in page(desk, "/admin/")
    every = page(desk, "/admin/batches/webhookdelivery/")
    assert str(ours.pk) in every
    assert str(theirs.pk) in every
    of_webhook = f"/admin/batches/webhookdelivery/?webhook__id__exact={ours.webhook_id}"
    own = page(desk, f"/admin/batches/webhook/{ours.webhook_id}/change/")
    assert f'href="{of_webhook}">0 delivered, 1 waiting, 0 given up</a>' in own
    listed = page(desk, of_webhook)
    assert str(ours.pk) in listed
    assert str(theirs.pk) not in listed
    assert "HTTP 410" not in listed


def test_the_page_of_a_delivery_has_every_attempt_and_no_rivals(
    acme: Any, rival: Any, desk: Client, answers: list[tuple[bool, str]]
) -> None:
    told(rival, "https://theirs.example/")
    answers += [(False, "HTTP 418")]
    webhooks.send_due()
    ours, now = told(acme, "https://ours.example/"), timezone.now()
    answers += [(False, "HTTP 501"), (False, "HTTP 502")]
    webhooks.send_due(now)
    webhooks.send_due(now + timedelta(seconds=4))
    answers += [(False, "HTTP 503")] * 2
    webhooks.send_due(now + timedelta(seconds=6))
    with tenant_scope(acme.tenant.pk):
        WebhookAttempt.objects.create(tenant=acme.tenant, delivery=ours, number=3)
    text = page(desk, f"/admin/batches/webhookdelivery/{ours.pk}/change/")
    assert "HTTP 501" in text
    assert "its worker died" in text
    assert "HTTP 418" not in text


@pytest.mark.parametrize(("state", "sought"), [("delivered", 0), ("waiting", 1), ("failed", 2)])
def test_deliveries_are_listed_by_what_became_of_them(
    acme: Any, rival: Any, desk: Client, state: str, sought: int
) -> None:
    rows = [told(party, "https://hooks.example/") for party in (acme, rival, acme)]
    fields: list[dict[str, Any]] = [{"delivered": timezone.now(), "due": None}, {}, {"due": None}]
    for row, changed in zip(rows, fields, strict=True):
        WebhookDelivery.across_tenants.filter(pk=row.pk).update(result="seen", **changed)
    text = page(desk, f"/admin/batches/webhookdelivery/?state={state}")
    assert [str(row.pk) in text for row in rows] == [number == sought for number in range(3)]


def test_a_webhook_goes_with_its_deliveries(acme: Any, rival: Any, desk: Client) -> None:
    ours, theirs = told(acme, "https://ours.example/"), told(rival, "https://theirs.example/")
    webhooks._claim(ours, timezone.now())
    address = f"/admin/batches/webhook/{ours.webhook_id}/delete/"
    assert desk.post(address, {"post": "yes"}).status_code == 302
    assert [row.pk for row in WebhookDelivery.across_tenants.all()] == [theirs.pk]
    assert not WebhookAttempt.across_tenants.exists()


def test_attempts_are_nobodys_to_change(acme: Any, desk: Client) -> None:
    ours = told(acme, "https://ours.example/")
    page_of_one = desk.get(f"/admin/batches/webhookdelivery/{ours.pk}/change/")
    (attempts,) = page_of_one.context["inline_admin_formsets"]
    may = {attempts.has_add_permission, attempts.has_change_permission, attempts.has_delete_permission}
    assert may == {False}
    assert not admin.site.is_registered(WebhookAttempt)
