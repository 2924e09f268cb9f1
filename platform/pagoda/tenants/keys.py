"""API keys: ``pgd_<prefix>_<secret>``. The prefix finds the row, the hash of the whole text proves it."""

from __future__ import annotations

import hmac
import re
import secrets
import string
import uuid
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from pagoda.tenants import audit
from pagoda.tenants.models import ApiKey, User
from pagoda.tenants.secrets import digest, new_secret

PREFIX_LENGTH = 8
_ALPHABET = string.ascii_lowercase + string.digits
_FORM = re.compile(rf"pgd_([a-z0-9]{{{PREFIX_LENGTH}}})_[A-Za-z0-9_-]{{43}}")


@transaction.atomic
def create_key(
    tenant_id: uuid.UUID,
    label: str,
    *,
    created_by: User | None,
    expires: datetime | None = None,
    requests_per_minute: int | None = None,
) -> tuple[ApiKey, str]:
    """A new key of the tenant, and its text: the only time that it exists outside its owner's hands."""
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(PREFIX_LENGTH))
    text = f"pgd_{prefix}_{new_secret()}"
    key = ApiKey.across_tenants.create(
        tenant_id=tenant_id,
        label=label,
        prefix=prefix,
        hash=digest(text),
        created_by=created_by,
        expires=expires,
        requests_per_minute=requests_per_minute,
    )
    audit.record("key.created", who=created_by, tenant_id=tenant_id, key=str(key.id), label=label)
    return key, text


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
