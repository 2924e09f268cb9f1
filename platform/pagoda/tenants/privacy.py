"""How far a tenant's people share cached prompts with each other."""

from __future__ import annotations

from django.db import transaction

from pagoda.tenants import audit
from pagoda.tenants.models import Tenant, User


@transaction.atomic
def change_cache_scope(tenant: Tenant, scope: str, *, who: User) -> bool:
    """For answers from now on. False where it was so before. Raises ValueError for what is no scope."""
    wanted = Tenant.CacheScope(scope)
    changed = Tenant.objects.filter(pk=tenant.pk).exclude(cache_scope=wanted).update(cache_scope=wanted)
    if changed:
        audit.record("tenant.cache_scope", who=who, tenant_id=tenant.pk, cache_scope=wanted.value)
    return bool(changed)
