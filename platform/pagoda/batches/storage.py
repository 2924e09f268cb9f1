"""Bytes of files on disk: written beside their place, moved there when they are whole, read in pieces."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from pagoda.batches.models import StoredFile

PIECE_BYTES = 1 << 18
WRITING = ".writing"
ABANDONED_S = 24 * 3600.0
"""A file that nobody has written to for so long, and that has no row, is the rest of a process that died."""


def folder() -> Path:
    """PAGODA_FILES, or the folder below PAGODA_HOME."""
    return Path(settings.PAGODA_FILES or Path(settings.PAGODA_HOME, "files"))


def path_of(tenant_id: uuid.UUID, file_id: uuid.UUID) -> Path:
    """Where a file's bytes lie."""
    return folder() / tenant_id.hex / file_id.hex


@contextmanager
def writing(tenant_id: uuid.UUID, file_id: uuid.UUID) -> Iterator[BinaryIO]:
    """A file in the making, for its owner alone: at its place, on the disk, when the block ends; gone if it raises."""
    path = path_of(tenant_id, file_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    making = path.with_name(path.name + WRITING)
    try:
        descriptor = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        making.rename(path)
        _sync_folder(path.parent)
    except BaseException:
        making.unlink(missing_ok=True)
        raise


async def pieces(tenant_id: uuid.UUID, file_id: uuid.UUID) -> AsyncGenerator[bytes, None]:
    """The bytes, PIECE_BYTES at a time. Raises FileNotFoundError before the first."""
    file = await asyncio.to_thread(open, path_of(tenant_id, file_id), "rb")
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


def remove(tenant_id: uuid.UUID, file_id: uuid.UUID) -> None:
    """Delete the bytes; does nothing where there are none."""
    path_of(tenant_id, file_id).unlink(missing_ok=True)


def sweep(now: float | None = None) -> int:
    """Delete what processes that died left behind: files in the making, and files without a row. Returns how many."""
    before = (now or time.time()) - ABANDONED_S
    removed = 0
    for path in list(folder().glob("*/*")):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before and not _is_known(path):
                path.unlink()
                removed += 1
    return removed


def _is_known(path: Path) -> bool:
    try:
        return StoredFile.across_tenants.filter(pk=uuid.UUID(path.name), tenant=uuid.UUID(path.parent.name)).exists()
    except ValueError:
        return not path.name.endswith(WRITING)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
