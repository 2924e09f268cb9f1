"""API keys: ``pgd_<prefix>_<secret>``. The prefix finds the row, the hash of the whole text proves it."""

from __future__ import annotations

import hmac
import re
import secrets
import string
import uuid
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from pagoda.tenants import audit
from pagoda.tenants.models import LIMITS, ApiKey, Scope, User
from pagoda.tenants.models.access import usual_scopes
from pagoda.tenants.secrets import digest, new_secret

PREFIX_LENGTH = 8
_ALPHABET = string.ascii_lowercase + string.digits
_FORM = re.compile(rf"pgd_([a-z0-9]{{{PREFIX_LENGTH}}})_[A-Za-z0-9_-]{{43}}")


class KeyRefused(Exception):
    """The message is one sentence for the person who tried."""


@transaction.atomic
def create_key(
    tenant_id: uuid.UUID,
    label: str,
    *,
    created_by: User | None,
    scopes: Collection[str] | None = None,
    expires: datetime | None = None,
    **limits: int | None,
) -> tuple[ApiKey, str]:
    """A new key of the tenant, and its text: the only time that it exists outside its owner's hands.

    scopes: values of Scope; None: the usual ones. limits: by the names of LIMITS. Raises KeyRefused.
    """
    key, text = _make(tenant_id, label, created_by, _checked(scopes), expires, limits)
    given = {name: value for name, value in key.limits().items() if value is not None}
    details = {"key": str(key.id), "label": label, "scopes": key.scopes} | given
    audit.record("key.created", who=created_by, tenant_id=tenant_id, **details)
    return key, text


@transaction.atomic
def rotate_key(key: ApiKey, *, who: User | None, overlap: timedelta = timedelta(0)) -> tuple[ApiKey, str]:
    """A new key in the place of this one: the same label, scopes and limits. The old one works until ``overlap`` ends.

    A key that was to expire sooner still does; the new one lasts as long as the old one was to last when it was made.
    Raises KeyRefused for a key that is revoked, expired or replaced already.
    """
    now = timezone.now()
    stored = ApiKey.across_tenants.select_for_update().get(pk=key.pk)
    if not stored.is_usable or stored.replaced_by_id is not None:
        raise KeyRefused(_("Only a key in use, which was not replaced yet, can be rotated."))
    expires = None if stored.expires is None else now + (stored.expires - stored.created)
    made, text = _make(stored.tenant_id, stored.label, who, stored.scopes, expires, stored.limits())
    end = now + max(overlap, timedelta(0))
    stored.replaced_by = made
    stored.expires = end if stored.expires is None else min(stored.expires, end)
    stored.save(update_fields=["replaced_by", "expires"])
    details = {"key": str(stored.id), "new": str(made.id), "label": made.label, "until": stored.expires.isoformat()}
    audit.record("key.rotated", who=who, tenant_id=stored.tenant_id, **details)
    return made, text


@transaction.atomic
def change_key(key: ApiKey, *, who: User | None, label: str, scopes: Collection[str], **limits: int | None) -> bool:
    """Change what the key is called, may be used for and is limited to. False where nothing changes. Raises KeyRefused.

    limits: by the names of LIMITS; those that are not named stay.
    """
    stored = ApiKey.across_tenants.select_for_update().get(pk=key.pk)
    before = {"label": stored.label, "scopes": stored.scopes} | stored.limits()
    _check(stored, "label", label.strip())
    stored.label, stored.scopes = label, _checked(scopes)
    _set_limits(stored, limits)
    after = {"label": stored.label, "scopes": stored.scopes} | stored.limits()
    changed = {name: value for name, value in after.items() if value != before[name]}
    if changed:
        stored.save(update_fields=list(changed))
        audit.record("key.changed", who=who, tenant_id=stored.tenant_id, key=str(stored.id), **changed)
    return bool(changed)


def _make(
    tenant_id: uuid.UUID,
    label: str,
    created_by: User | None,
    scopes: list[str],
    expires: datetime | None,
    limits: Mapping[str, int | None],
) -> tuple[ApiKey, str]:
    prefix = "".join(secrets.choice(_ALPHABET) for _character in range(PREFIX_LENGTH))
    text = f"pgd_{prefix}_{new_secret()}"
    key = ApiKey(
        tenant_id=tenant_id,
        label=label,
        prefix=prefix,
        hash=digest(text),
        scopes=scopes,
        created_by=created_by,
        expires=expires,
    )
    _set_limits(key, limits)
    _check(key, "label", label.strip())
    key.save()
    return key, text


def _checked(scopes: Collection[str] | None) -> list[str]:
    """In the order of Scope, each once."""
    if scopes is None:
        return usual_scopes()
    known = ", ".join(Scope.values)
    unknown = ", ".join(sorted(set(scopes) - set(Scope.values)))
    if unknown:
        raise KeyRefused(f"There is no scope {unknown[:100]}: a key has some of {known}.")
    if not scopes:
        raise KeyRefused(_("A key needs at least one scope of: %(known)s.") % {"known": known})
    return [scope for scope in Scope.values if scope in scopes]


def _set_limits(key: ApiKey, limits: Mapping[str, int | None]) -> None:
    for name, value in limits.items():
        if name not in LIMITS:
            raise TypeError(f"{name} is no limit")
        _check(key, name, value)
        setattr(key, name, value)


def _check(key: ApiKey, name: str, value: Any) -> None:
    field: Any = ApiKey._meta.get_field(name)
    try:
        field.clean(value, key)
    except ValidationError as error:
        raise KeyRefused(f"{field.verbose_name}: {' '.join(error.messages)}") from None


def authenticate_key(text: str) -> ApiKey | None:
    """The usable key (tenant loaded) that this text is, or None: unknown, revoked, expired, or its tenant suspended."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    key = ApiKey.across_tenants.select_related("tenant").filter(prefix=match[1]).first()
    if key is None or not hmac.compare_digest(key.hash, digest(text)):
        return None
    return key if key.is_usable and key.tenant.is_active else None


@transaction.atomic
def revoke_key(key: ApiKey, *, who: User) -> None:
    """The key stops working with the next request."""
    if ApiKey.across_tenants.filter(pk=key.pk, revoked__isnull=True).update(revoked=timezone.now()):
        audit.record("key.revoked", who=who, tenant_id=key.tenant_id, key=str(key.id), label=key.label)
