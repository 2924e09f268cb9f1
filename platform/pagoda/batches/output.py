"""The files of a batch that ends: its lines' results in the order of the input, at their place when they are whole."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from pagoda.batches import input_file, results, storage, webhooks
from pagoda.batches.models import Batch, BatchLine, StoredFile
from pagoda.tenants.identifiers import new_id
from pagoda.tenants.scoping import tenant_scope

ROWS = 200
"""Read at a time."""


@dataclass(slots=True)
class _Writing:
    """One file in the making. Nothing is made until there is a line."""

    tenant_id: uuid.UUID
    id: uuid.UUID
    open_files: ExitStack
    write: Callable[[bytes], int] | None = None
    lines: int = 0
    size: int = 0

    def add(self, text: str) -> None:
        if self.write is None:
            self.write = self.open_files.enter_context(storage.writing(self.tenant_id, self.id)).write
        data = text.encode() + b"\n"
        self.write(data)
        self.lines += 1
        self.size += len(data)


def write_and_finish(batch: Batch, now: datetime) -> bool:
    """Write the files of a batch that is being finalised, and make it final.

    batch: as ``lease.begin_finalizing`` left it. Lines without a result are told as not run. False where the lease was
    lost: another runner writes them. A process that dies on the way leaves files without a row, which the sweep
    deletes.
    """
    with tenant_scope(batch.tenant_id):
        with ExitStack() as open_files:
            output = _Writing(batch.tenant_id, new_id(), open_files)
            error = _Writing(batch.tenant_id, new_id(), open_files)
            for ok, text in _texts(batch):
                (output if ok else error).add(text)
        if _finish(batch, output, error, now):
            return True
        for each in (output, error):
            storage.remove(each.tenant_id, each.id)
        return False


def _texts(batch: Batch) -> Iterator[tuple[bool, str]]:
    """Whether a line succeeded, and its text: of all lines; of those with a result, where the input is lost."""
    stored = _stored(batch)
    path = storage.path_of(batch.tenant_id, batch.input_file)
    if not batch.total or not path.exists():
        yield from ((row.ok, row.text) for row in stored)
        return
    row = next(stored, None)
    for line in input_file.read(path, batch.endpoint):
        if row is not None and row.number == line.number:
            yield row.ok, row.text
            row = next(stored, None)
        else:
            yield False, results.not_run(line.custom_id, batch.outcome)


def _stored(batch: Batch) -> Iterator[BatchLine]:
    after = 0
    while rows := list(BatchLine.objects.filter(batch=batch, number__gt=after).order_by("number")[:ROWS]):
        yield from rows
        after = rows[-1].number


def _finish(batch: Batch, output: _Writing, error: _Writing, now: datetime) -> bool:
    with transaction.atomic():
        held = Batch.objects.select_for_update().filter(
            pk=batch.pk, lease_owner=batch.lease_owner, finished__isnull=True
        )
        row = held.select_related(None).first()
        if row is None:
            return False
        row.output_file = _register(row, output, "output")
        row.error_file = _register(row, error, "error")
        row.completed, row.failed = output.lines, error.lines
        row.status, row.finished, row.lease_owner = row.outcome, now, ""
        row.save()
        BatchLine.objects.filter(batch=row).delete()
        webhooks.announce(row)
        return True


def _register(batch: Batch, writing: _Writing, kind: str) -> uuid.UUID | None:
    if not writing.lines:
        return None
    created = timezone.now()
    kept_s = batch.output_expires_after
    StoredFile.objects.create(
        id=writing.id,
        tenant_id=batch.tenant_id,
        api_key_id=batch.api_key_id,
        purpose=StoredFile.Purpose.BATCH_OUTPUT,
        filename=f"{batch.public_id}_{kind}.jsonl",
        bytes=writing.size,
        created=created,
        expires=None if kept_s is None else created + timedelta(seconds=kept_s),
    )
    return writing.id
