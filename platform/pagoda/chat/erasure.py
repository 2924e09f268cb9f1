"""A conversation's row is gone, by retention or with its owner: the engines forget it, its answers' texts go too."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.db.models.signals import post_delete
from django.dispatch import receiver

from pagoda.chat.models import Conversation
from pagoda.generations import purging
from pagoda.generations.models import Generation
from pagoda.tenants.models import Tenant


@receiver(post_delete, sender=Conversation, dispatch_uid="chat.erasure")
def erase(instance: Conversation, origin: Any, **_: Any) -> None:
    """In the deletion's own transaction. A tenant's rows go with it, and its blocks with its account."""
    if (origin.model if isinstance(origin, QuerySet) else type(origin)) is Tenant:
        return
    lineage = str(instance.pk)
    purging.order(str(instance.tenant_id), [lineage])
    Generation.across_tenants.filter(lineage=lineage, finished__isnull=False).delete()
