"""Every change of a published prefix reaches the engines after the commit."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from pagoda.assistants.models import PrefixVersion, PublishedPrefix
from pagoda.assistants.publishing import push


@receiver([post_save, post_delete], sender=PublishedPrefix, dispatch_uid="assistants_prefix_changed")
def prefix_changed(**arguments: Any) -> None:
    if not arguments.get("raw"):
        PrefixVersion.raise_above(0)
        transaction.on_commit(push)
