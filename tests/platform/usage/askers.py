"""Askers and limits of two tenants."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from pagoda.tenants.keys import create_key
from pagoda.tenants.models import ApiKey, Tenant
from pagoda.tenants.scoping import tenant_scope
from pagoda.usage import admission, ledger
from pagoda.usage.models import Meter, TenantLimits


@dataclass(frozen=True)
class Member:
    """A person who asks: no key."""

    tenant: Tenant
    api_key: ApiKey | None = None


def limit(tenant: Tenant, **limits: int) -> TenantLimits:
    return TenantLimits.across_tenants.create(tenant=tenant, **limits)


def key_of(party: Any, **fields: Any) -> ApiKey:
    key, _ = create_key(party.tenant.id, "app", created_by=party.admin, **fields)
    return ApiKey.across_tenants.select_related("tenant").get(pk=key.pk)


def reserve(asker: Any, prompt: int = 10, output: int | None = 10, **rest: Any) -> admission.Hold:
    """Under the asker's scope. rest: of Asked, or now."""
    now = rest.pop("now", None)
    asked = admission.Asked(prompt_tokens=prompt, max_output_tokens=output, **rest)
    with tenant_scope(asker.tenant.id):
        return admission.reserve(asker, asked, generation_id=uuid.uuid4(), now=now)


def enter(party: Any, generation_id: uuid.UUID | None = None, prompt: int = 10, output: int = 5, **rest: Any) -> bool:
    """Into the ledger, under the tenant's scope."""
    fields = {"user_id": None, "api_key_id": None, "model": "echo", "purpose": "api", "cached_tokens": 0} | rest
    with tenant_scope(party.tenant.id):
        return ledger.enter(
            generation_id=generation_id or uuid.uuid4(),
            tenant_id=party.tenant.id,
            prompt_tokens=prompt,
            output_tokens=output,
            **fields,
        )


def meter(subject: Any) -> Meter:
    return Meter.across_tenants.get(subject=subject.pk)
