"""API keys: shown once, stored as a hash, useless once revoked or expired."""

from datetime import timedelta

import pytest
from django.utils import timezone

from pagoda.tenants.keys import authenticate_key, create_key, revoke_key
from pagoda.tenants.models import ApiKey, AuditEntry

pytestmark = pytest.mark.django_db


def test_the_text_opens_its_own_tenant(acme, rival):
    key, text = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    create_key(rival.tenant.id, "ci", created_by=rival.admin)
    assert authenticate_key(text) == key
    assert authenticate_key(text).tenant == acme.tenant


def test_only_a_hash_is_stored(acme):
    key, text = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    secret = text.removeprefix(f"pgd_{key.prefix}_")
    stored = str(ApiKey.across_tenants.filter(pk=key.pk).values().get())
    assert secret not in stored
    assert text.startswith(f"pgd_{key.prefix}_")
    assert secret not in str(AuditEntry.across_tenants.values())


def test_a_changed_or_foreign_text_opens_nothing(acme, rival):
    _, text = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    _, other = create_key(rival.tenant.id, "ci", created_by=rival.admin)
    mixed = "_".join([*text.split("_", 2)[:2], other.split("_", 2)[2]])
    for wrong in ("", "pgd_", text[:-1], text + "x", text[:-1] + "!", mixed, text.upper(), "x" * 10_000):
        assert authenticate_key(wrong) is None


def test_a_revoked_expired_or_suspended_key_opens_nothing(acme):
    key, text = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    _, expired = create_key(acme.tenant.id, "old", created_by=None, expires=timezone.now() - timedelta(seconds=1))
    assert authenticate_key(expired) is None
    acme.tenant.is_active = False
    acme.tenant.save()
    assert authenticate_key(text) is None
    acme.tenant.is_active = True
    acme.tenant.save()
    assert authenticate_key(text) is not None
    revoke_key(key, who=acme.admin)
    assert authenticate_key(text) is None
