"""Changing a tenant's assistant, with its record."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from pagoda.assistants.models import Assistant
from pagoda.tenants import audit
from pagoda.tenants.models import User


@transaction.atomic
def save(assistant: Assistant, *, who: User) -> None:
    """Conversations that have begun keep what they began with."""
    assistant.changed, assistant.changed_by = timezone.now(), who
    assistant.save()
    audit.record(
        "assistant.changed",
        who=who,
        tenant_id=assistant.tenant_id,
        prefix=assistant.prefix.name if assistant.prefix is not None else None,
        characters=len(assistant.text),
    )
