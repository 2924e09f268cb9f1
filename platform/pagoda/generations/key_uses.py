"""What API keys are good for while something of theirs is under way: calls and chats end with the right to them.

Synchronous, across tenants: for whoever keeps the leases of a process.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pagoda.generations.models import Generation
from pagoda.tenants.models import ApiKey, Scope

Use = tuple[uuid.UUID, str]
"""A key, and the scope that it needs."""


def use_of(key_id: uuid.UUID, purpose: str) -> Use:
    """What a key has to be good for, for a generation of this purpose."""
    return key_id, Scope.BATCH if purpose == Generation.Purpose.BATCH else Scope.CHAT


def still_good(uses: set[Use]) -> set[Use]:
    """Those whose keys are neither revoked nor expired, have the scope, and are not of a suspended tenant."""
    rows = ApiKey.across_tenants.filter(pk__in={key_id for key_id, _ in uses}, tenant__is_active=True)
    keys = {key.pk: key for key in rows if key.is_usable}
    return {(key_id, scope) for key_id, scope in uses if key_id in keys and keys[key_id].allows(scope)}


def to_stop(ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Generations somebody asked to stop, whose tenant is suspended, or whose key is not good for them any more."""
    rows = Generation.across_tenants.filter(pk__in=ids).values_list(
        "pk", "api_key_id", "purpose", "cancel_requested", "tenant__is_active"
    )
    stopping, uses = set(), {}
    for pk, key_id, purpose, cancel_requested, tenant_is_active in rows:
        if cancel_requested or not tenant_is_active:
            stopping.add(pk)
        elif key_id is not None:
            uses[pk] = use_of(key_id, purpose)
    if uses:
        good = still_good(set(uses.values()))
        stopping |= {pk for pk, use in uses.items() if use not in good}
    return stopping
