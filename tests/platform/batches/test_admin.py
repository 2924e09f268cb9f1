"""What operators see of batches, and what tenants' people do not."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from pagoda.batches.models import Batch, StoredFile, Webhook
from pagoda.tenants.models import AuditEntry
from pagoda.tenants.scoping import tenant_scope


@pytest.fixture
def batches(acme: Any, rival: Any) -> list[Batch]:
    """One of each tenant."""
    made = []
    for party in (acme, rival):
        with tenant_scope(party.tenant.pk):
            fields = {"endpoint": "/v1/completions", "input_file": party.tenant.pk, "expires": timezone.now()}
            made.append(
                Batch.objects.create(
                    tenant=party.tenant, status="in_progress", total=200, completed=50, failed=1, **fields
                )
            )
            StoredFile.objects.create(tenant=party.tenant, purpose="batch", filename="secret-plans.jsonl", bytes=7)
    return made


def test_operators_see_how_far_every_tenants_batches_are(operator: Any, batches: list[Batch]) -> None:
    browser = Client()
    browser.force_login(operator)
    page = browser.get("/admin/batches/batch/").content.decode()
    assert page.count("51 / 200 (25 %)") == 2
    assert all(str(batch.pk) in page for batch in batches)
    only = browser.get(f"/admin/batches/batch/?tenant__id__exact={batches[0].tenant_id}").content.decode()
    assert str(batches[0].pk) in only
    assert str(batches[1].pk) not in only
    assert browser.get(f"/admin/batches/batch/{batches[0].pk}/change/").status_code == 200
    assert "secret-plans" not in browser.get("/admin/batches/storedfile/").content.decode()


def test_tenants_people_do_not_get_in(acme: Any, batches: list[Batch]) -> None:
    browser = Client()
    browser.force_login(acme.admin)
    for page in ("batch", "storedfile", "webhook", "webhookdelivery"):
        assert browser.get(f"/admin/batches/{page}/").status_code == 302


def test_operators_make_change_and_remove_webhooks(operator: Any, acme: Any) -> None:
    browser = Client()
    browser.force_login(operator)
    add = {"tenant": str(acme.tenant.pk), "url": "https://hooks.example/", "is_active": "on", "secret_number": "1"}
    assert browser.post("/admin/batches/webhook/add/", add | {"url": "ftp://hooks.example/"}).status_code == 200
    assert browser.post("/admin/batches/webhook/add/", add).status_code == 302
    webhook = Webhook.across_tenants.get()
    page = f"/admin/batches/webhook/{webhook.pk}"
    assert webhook.secret in browser.get(f"{page}/change/").content.decode().replace("&#x2B;", "+")
    assert browser.get("/admin/batches/webhook/").status_code == 200
    assert browser.post(f"{page}/change/", add | {"secret_number": "2"}).status_code == 302
    assert Webhook.across_tenants.get().secret != webhook.secret
    assert browser.post(f"{page}/delete/", {"post": "yes"}).status_code == 302
    assert not Webhook.across_tenants.exists()
    entries = AuditEntry.across_tenants.filter(tenant=acme.tenant).order_by("pk").values_list("what", flat=True)
    assert list(entries) == ["webhook.changed", "webhook.changed", "webhook.deleted"]
