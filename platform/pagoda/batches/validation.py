"""The check of a batch's input, once, before anything is asked: the batch goes on, or has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec
from django.db import transaction

from pagoda.batches import input_file, quota, storage, webhooks
from pagoda.batches.models import Batch
from pagoda.batches.models.batches import Status
from pagoda.batches.objects import BatchError
from pagoda.generations.database_threads import in_database
from pagoda.tenants.scoping import tenant_scope


async def validate(batch: Batch, owner: str, now: Callable[[], datetime]) -> str | None:
    """Check the input of a batch that ``owner`` holds. Returns the batch's status by then; None: the lease is lost."""
    full = await in_database(_no_room, batch)
    total, errors = (0, [full]) if full is not None else await asyncio.to_thread(_check, batch)
    return await in_database(_store, batch, owner, total, errors, now())


def _check(batch: Batch) -> tuple[int, list[BatchError]]:
    try:
        return input_file.check(storage.path_of(batch.tenant_id, batch.input_file), batch.endpoint)
    except FileNotFoundError:
        return 0, [BatchError("file_not_found", "The input file is gone.", "input_file_id")]


def _no_room(batch: Batch) -> BatchError | None:
    """Of many batches that were made while there was room, those after the first few may find none."""
    with tenant_scope(batch.tenant_id):
        space = quota.space()
    return BatchError(quota.CODE, quota.is_full(space)) if space.is_full else None


def _store(batch: Batch, owner: str, total: int, errors: list[BatchError], now: datetime) -> str | None:
    with tenant_scope(batch.tenant_id), transaction.atomic():
        row = Batch.objects.select_for_update().filter(pk=batch.pk, lease_owner=owner, finished__isnull=True).first()
        if row is None:
            return None
        row.total = 0 if errors else total
        row.errors = [msgspec.to_builtins(error) for error in errors]
        if errors:
            row.status, row.finished, row.lease_owner = Status.FAILED, now, ""
        elif row.status == Status.VALIDATING:
            row.status, row.in_progress_at = Status.IN_PROGRESS, now
        row.save()
        if row.finished is not None:
            webhooks.announce(row)
        return row.status
