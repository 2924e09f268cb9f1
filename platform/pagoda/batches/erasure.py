"""A file's row is gone, by itself or with its tenant: its bytes go too, once that is committed."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete

from pagoda.batches import storage
from pagoda.batches.models import StoredFile


def listen() -> None:
    """Run once, when the application is ready."""
    post_delete.connect(_forget, sender=StoredFile)


def _forget(instance: StoredFile, **_: Any) -> None:
    transaction.on_commit(partial(storage.remove, instance.tenant_id, instance.pk), robust=True)
