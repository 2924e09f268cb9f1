"""API keys: shown once, stored as a hash, useless once revoked or expired."""

from datetime import timedelta

import pytest
from django.utils import timezone

from pagoda.tenants.keys import KeyRefused, authenticate_key, change_key, create_key, revoke_key, rotate_key
from pagoda.tenants.models import ApiKey, AuditEntry, Scope

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


def test_scopes_say_what_a_key_is_for(acme, rival):
    usual, _ = create_key(acme.tenant.id, "usual", created_by=None)
    assert [scope for scope in Scope.values if usual.allows(scope)] == ["chat", "batch"]
    narrow, _ = create_key(acme.tenant.id, "narrow", created_by=None, scopes=["admin"])
    assert [scope for scope in Scope.values if narrow.allows(scope)] == ["admin"]
    for wrong in ([], ["everything"], ["chat", "everything"]):
        with pytest.raises(KeyRefused, match="chat, batch, admin"):
            create_key(acme.tenant.id, "wrong", created_by=None, scopes=wrong)


def test_limits_are_positive(acme, rival):
    with pytest.raises(KeyRefused):
        create_key(acme.tenant.id, "wrong", created_by=None, tokens_per_minute=0)
    with pytest.raises(TypeError):
        create_key(acme.tenant.id, "wrong", created_by=None, tokens_per_year=1)


def test_a_rotated_key_works_until_the_overlap_ends(acme, rival, monkeypatch):
    key, old = create_key(acme.tenant.id, "ci", created_by=acme.admin, scopes=["batch"], monthly_tokens=77)
    made, new = rotate_key(key, who=acme.admin, overlap=timedelta(hours=1))
    assert (made.label, made.scopes, made.monthly_tokens, made.expires) == ("ci", ["batch"], 77, None)
    assert authenticate_key(old) == key
    assert authenticate_key(new) == made
    later = timezone.now() + timedelta(minutes=61)
    monkeypatch.setattr(timezone, "now", lambda: later)
    assert authenticate_key(old) is None
    assert authenticate_key(new) == made
    key.refresh_from_db()
    assert key.replaced_by == made
    entry = AuditEntry.across_tenants.get(what="key.rotated")
    assert (entry.who, entry.tenant, entry.details["new"]) == (acme.admin, acme.tenant, str(made.id))
    assert new.removeprefix(f"pgd_{made.prefix}_") not in str(entry.details)


def test_without_an_overlap_the_old_key_ends_at_once(acme, rival):
    key, old = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    rotate_key(key, who=acme.admin)
    assert authenticate_key(old) is None


def test_an_overlap_lengthens_no_life(acme, rival):
    soon = timezone.now() + timedelta(minutes=5)
    key, _ = create_key(acme.tenant.id, "ci", created_by=acme.admin, expires=soon)
    made, _ = rotate_key(key, who=acme.admin, overlap=timedelta(days=7))
    key.refresh_from_db()
    assert key.expires == soon
    assert timedelta(minutes=4) < made.expires - timezone.now() <= timedelta(minutes=5)


def test_only_a_key_in_use_is_rotated_and_only_once(acme, rival):
    key, _ = create_key(acme.tenant.id, "ci", created_by=acme.admin)
    rotate_key(key, who=acme.admin, overlap=timedelta(days=1))
    with pytest.raises(KeyRefused):
        rotate_key(key, who=acme.admin)
    revoked, _ = create_key(acme.tenant.id, "gone", created_by=acme.admin)
    revoke_key(revoked, who=acme.admin)
    with pytest.raises(KeyRefused):
        rotate_key(revoked, who=acme.admin)
    assert ApiKey.across_tenants.count() == 3


def test_a_change_is_recorded_and_leaves_the_text_alone(acme, rival):
    key, text = create_key(acme.tenant.id, "ci", created_by=acme.admin, requests_per_minute=5)
    assert change_key(key, who=acme.admin, label="ci", scopes=["chat"], monthly_tokens=100)
    changed = authenticate_key(text)
    assert (changed.scopes, changed.requests_per_minute, changed.monthly_tokens) == (["chat"], 5, 100)
    assert not change_key(key, who=acme.admin, label="ci", scopes=["chat"], monthly_tokens=100)
    entry = AuditEntry.across_tenants.get(what="key.changed")
    assert entry.details == {"key": str(key.id), "scopes": ["chat"], "monthly_tokens": 100}
