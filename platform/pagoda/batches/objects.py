"""Files and batches as clients see them: OpenAI's objects, as structs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeVar

from msgspec import Struct

from pagoda.batches import retention
from pagoda.batches.models import Batch, StoredFile
from pagoda.batches.models.batches import Status
from pagoda.batches.models.files import PREFIX as FILE_PREFIX

Row = TypeVar("Row", Batch, StoredFile)


class FileObject(Struct, frozen=True):
    """A file. ``created_at``: seconds since 1970."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"
    expires_at: int | None = None
    status_details: None = None


class FileList(Struct, frozen=True):
    data: list[FileObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"


class FileDeleted(Struct, frozen=True):
    id: str
    deleted: Literal[True] = True
    object: Literal["file"] = "file"


class RequestCounts(Struct, frozen=True):
    """Lines of the input; those answered, and those that failed, so far."""

    total: int
    completed: int
    failed: int


class BatchError(Struct, frozen=True):
    """``line``: of the input file, from 1."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class BatchErrors(Struct, frozen=True):
    data: list[BatchError]
    object: Literal["list"] = "list"


class BatchObject(Struct, frozen=True):
    """A batch. Times: seconds since 1970."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str
    created_at: int
    expires_at: int
    request_counts: RequestCounts
    errors: BatchErrors | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    metadata: dict[str, str] | None = None
    object: Literal["batch"] = "batch"


class BatchList(Struct, frozen=True):
    data: list[BatchObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"


WINDOW = "24h"


def file_object(file: StoredFile) -> FileObject:
    return FileObject(
        file.public_id,
        file.bytes,
        _seconds(file.created),
        file.filename,
        file.purpose,
        expires_at=_when(retention.expiry(file)),
    )


def file_list(files: Sequence[StoredFile], has_more: bool) -> FileList:
    return FileList([file_object(file) for file in files], has_more, *_ends(files))


def batch_object(batch: Batch) -> BatchObject:
    ended = {status: _when(batch.finished if batch.status == status else None) for status in Status}
    return BatchObject(
        id=batch.public_id,
        endpoint=batch.endpoint,
        input_file_id=file_id(batch.input_file) or "",
        completion_window=WINDOW,
        status=batch.status,
        created_at=_seconds(batch.created),
        expires_at=_seconds(batch.expires),
        request_counts=RequestCounts(batch.total, batch.completed, batch.failed),
        errors=BatchErrors([BatchError(**error) for error in batch.errors]) if batch.errors else None,
        output_file_id=file_id(batch.output_file),
        error_file_id=file_id(batch.error_file),
        in_progress_at=_when(batch.in_progress_at),
        finalizing_at=_when(batch.finalizing_at),
        completed_at=ended[Status.COMPLETED],
        failed_at=ended[Status.FAILED],
        expired_at=ended[Status.EXPIRED],
        cancelling_at=_when(batch.cancelling_at),
        cancelled_at=ended[Status.CANCELLED],
        metadata=batch.metadata,
    )


def batch_list(batches: Sequence[Batch], has_more: bool) -> BatchList:
    return BatchList([batch_object(batch) for batch in batches], has_more, *_ends(batches))


def file_id(id: uuid.UUID | None) -> str | None:
    """The id of a file as clients know it."""
    return None if id is None else f"{FILE_PREFIX}{id.hex}"


def parse_id(text: str, prefix: str) -> uuid.UUID | None:
    """The row's id; None for a text that is none of ours."""
    hexadecimal = text.removeprefix(prefix)
    if not text.startswith(prefix) or len(hexadecimal) != 32:
        return None
    try:
        found = uuid.UUID(hexadecimal)
    except ValueError:
        return None
    return found if found.hex == hexadecimal else None


def _ends(rows: Sequence[Row]) -> tuple[str | None, str | None]:
    return (rows[0].public_id, rows[-1].public_id) if rows else (None, None)


def _seconds(time: datetime) -> int:
    return int(time.timestamp())


def _when(time: datetime | None) -> int | None:
    return None if time is None else _seconds(time)
