"""The one place that writes the ledger: a generation's record, and what it counts against."""

from __future__ import annotations

import uuid

from django.db import transaction
from django.utils import timezone

from pagoda.usage import admission, meters
from pagoda.usage.models import UsageRecord


def enter(
    *,
    generation_id: uuid.UUID,
    tenant_id: uuid.UUID,
    user_id: uuid.UUID | None,
    api_key_id: uuid.UUID | None,
    model: str,
    purpose: str,
    prompt_tokens: int,
    cached_tokens: int,
    output_tokens: int,
) -> bool:
    """Write what a generation used, once, and settle its hold. Under the tenant's scope, in the caller's transaction.

    False where it is there already, or nothing was used: then the whole hold is given back. A generation that holds
    nothing (a title, or one from before there were limits) counts against the budgets all the same.
    """
    now = timezone.now()
    if not prompt_tokens and not output_tokens:
        admission.settle(generation_id, 0, 0, 0, now=now)
        return False
    numbers = {"prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens, "output_tokens": output_tokens}
    who = {"tenant_id": tenant_id, "user_id": user_id, "api_key_id": api_key_id}
    with transaction.atomic(savepoint=False):
        _, created = UsageRecord.objects.get_or_create(
            generation_id=generation_id, defaults=who | numbers | {"model": model, "purpose": purpose, "created": now}
        )
        if not created:
            return False
        if not admission.settle(generation_id, prompt_tokens, cached_tokens, output_tokens, now=now):
            subjects = [tenant_id, *([api_key_id] if api_key_id else [])]
            meters.count(subjects, prompt_tokens + output_tokens, now, generation_id)
        return True
