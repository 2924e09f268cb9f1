"""Files on their way in: multipart bodies, whose file goes straight from the spooled body to its place."""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.db import transaction
from django.http import HttpRequest
from django.http.multipartparser import MAX_TOTAL_HEADER_SIZE, MultiPartParserError  # type: ignore[attr-defined]
from django.utils import timezone

from pagoda.api.errors import ApiError
from pagoda.api.validation import field_path
from pagoda.batches import quota, storage
from pagoda.batches.models import StoredFile
from pagoda.batches.requests import MAX_EXPIRY_S, MIN_EXPIRY_S
from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import ApiKey
from pagoda.tenants.scoping import tenant_scope

MAX_FILE_BYTES = 200 << 20
OVERHEAD_BYTES = 1 << 16
"""Of the multipart body around the file."""
MAX_NAME = 255
ANCHOR, SECONDS = "expires_after[anchor]", "expires_after[seconds]"
"""Fields as clients put an object into a multipart body."""


def most_bytes_of_a_body() -> int:
    """What POST /v1/files takes in."""
    return MAX_FILE_BYTES + OVERHEAD_BYTES


def receive(request: HttpRequest, key: ApiKey) -> StoredFile:
    """Store the file of the request. Runs in a thread: the body is parsed here, piece by piece. Raises ApiError."""
    if request.content_type != "multipart/form-data":
        raise ApiError("unsupported_media_type", "Send the file as multipart/form-data, with fields purpose and file.")
    with tenant_scope(key.tenant_id):
        space = quota.space()
    handler = _Receiver(key.tenant_id, new_id(), MAX_FILE_BYTES if space.room is None else space.room)
    request.upload_handlers = [handler]
    with ExitStack() as undo:
        undo.callback(handler.discard)
        try:
            fields = dict(request.POST.items())
        except (MultiPartParserError, RequestDataTooBig, SuspiciousOperation, UnicodeError, ValueError) as error:
            raise _malformed(error) from None
        if handler.fault is not None:
            raise handler.fault
        if handler.too_large:
            raise ApiError("request_too_large", f"A file may have {MAX_FILE_BYTES >> 20} MiB at most.", "file")
        if handler.no_room:
            raise quota.no_room(space, "file")
        expires_after = _check(fields, handler)
        stored = handler.store(key, expires_after)
        undo.pop_all()
    return stored


def _malformed(error: Exception) -> ApiError:
    if "header size" in str(error):
        told = f"The headers of a part may have {MAX_TOTAL_HEADER_SIZE} bytes, names included: shorten the file's name."
        return ApiError("invalid_value", told, "file")
    return ApiError("invalid_value", "The multipart body is malformed.")


def _unknown(name: str) -> ApiError:
    """``expires_after[x]`` is about expires_after."""
    path = field_path([name.partition("[")[0]])
    return ApiError("unknown_field", "There are three fields: purpose, file and expires_after.", path)


def _check(fields: dict[str, Any], handler: _Receiver) -> timedelta | None:
    """Raises ApiError. Returns how long the file is to be kept, where the client says so."""
    if "file" in fields:
        raise ApiError("invalid_value", "This must be a file, with a name.", "file")
    for name in fields:
        if name not in ("purpose", ANCHOR, SECONDS):
            raise _unknown(name)
    if "purpose" not in fields:
        raise ApiError("missing_field", "This field is required, and must be batch.", "purpose")
    if fields["purpose"] != StoredFile.Purpose.BATCH:
        raise ApiError("unsupported_value", "Files are for batches here: purpose must be batch.", "purpose")
    if not handler.is_whole:
        raise ApiError("missing_field", "This field is required: the file.", "file")
    if handler.size == 0:
        raise ApiError("invalid_value", "The file is empty.", "file")
    return _expiry(fields)


def _expiry(fields: dict[str, Any]) -> timedelta | None:
    anchor, seconds = fields.get(ANCHOR), fields.get(SECONDS)
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise ApiError("invalid_value", "The anchor must be created_at.", "expires_after.anchor")
    if seconds is None or not re.fullmatch(r"[0-9]{1,9}", seconds) or not MIN_EXPIRY_S <= int(seconds) <= MAX_EXPIRY_S:
        limits = f"This must be a whole number from {MIN_EXPIRY_S} to {MAX_EXPIRY_S}."
        raise ApiError("invalid_value", limits, "expires_after.seconds")
    return timedelta(seconds=int(seconds))


class _Receiver(FileUploadHandler):
    """Writes the one file named ``file`` to its place. room: bytes that the tenant's quota has left."""

    chunk_size = 1 << 18

    def __init__(self, tenant_id: uuid.UUID, file_id: uuid.UUID, room: int) -> None:
        super().__init__()
        self.tenant_id, self.file_id = tenant_id, file_id
        self.size = 0
        self.too_large = self.no_room = self.is_whole = False
        self.fault: ApiError | None = None
        """What is wrong with the parts of the body, where it is told apart."""
        self._room = room
        self._name = ""
        self._writing = ExitStack()
        self._file: Any = None

    def new_file(self, field_name: str, *args: Any, **kwargs: Any) -> None:
        super().new_file(field_name, *args, **kwargs)
        if field_name != "file" or self._file is not None:
            one = ApiError("invalid_value", "Send one file at a time, in one part named file.", "file")
            self.fault = one if field_name == "file" else _unknown(field_name)
            raise StopUpload(connection_reset=False)
        self._name = (self.file_name or "file")[:MAX_NAME]
        self._file = self._writing.enter_context(storage.writing(self.tenant_id, self.file_id))

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self.size += len(raw_data)
        self.too_large = self.size > MAX_FILE_BYTES
        self.no_room = self.size > self._room
        if self.too_large or self.no_room:
            raise StopUpload(connection_reset=False)
        self._file.write(raw_data)

    def file_complete(self, file_size: int) -> None:
        self._writing.close()
        self.is_whole = True

    def store(self, key: ApiKey, expires_after: timedelta | None) -> StoredFile:
        """Write the row of the file that is at its place. Raises ApiError where others took up the room meanwhile."""
        created = timezone.now()
        with tenant_scope(self.tenant_id), transaction.atomic():
            space = quota.locked_space()
            if space.room is not None and self.size > space.room:
                raise quota.no_room(space, "file")
            return StoredFile.objects.create(
                id=self.file_id,
                tenant=key.tenant,
                api_key=key,
                purpose=StoredFile.Purpose.BATCH,
                filename=self._name,
                bytes=self.size,
                created=created,
                expires=None if expires_after is None else created + expires_after,
            )

    def discard(self) -> None:
        """Leave nothing on the disk."""
        with ExitStack() as ending:
            ending.callback(storage.remove, self.tenant_id, self.file_id)
            if not self.is_whole:
                self._writing.__exit__(MultiPartParserError, MultiPartParserError(), None)
