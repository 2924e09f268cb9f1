"""/v1/files: what batches read and write, uploaded, listed, fetched and deleted."""

from __future__ import annotations

import asyncio
from typing import Literal

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from ninja import Query, Router
from pydantic import Field

from pagoda.api.authentication import scoped
from pagoda.api.errors import ApiError, json_response
from pagoda.api.openapi import describe
from pagoda.api.requests.fields import Body
from pagoda.batches import objects, pages, retention, storage, uploads
from pagoda.batches.models import StoredFile
from pagoda.batches.models.files import PREFIX
from pagoda.batches.requests import MAX_EXPIRY_S, MIN_EXPIRY_S
from pagoda.generations.database_threads import in_database
from pagoda.tenants.models import ApiKey
from pagoda.tenants.scoping import tenant_scope

router = Router(tags=["Files"])

_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["purpose", "file"],
                    "properties": {
                        "purpose": {"type": "string", "enum": [StoredFile.Purpose.BATCH.value]},
                        "file": {"type": "string", "format": "binary"},
                        "expires_after": {
                            "type": "object",
                            "required": ["anchor", "seconds"],
                            "properties": {
                                "anchor": {"type": "string", "enum": ["created_at"]},
                                "seconds": {"type": "integer", "minimum": MIN_EXPIRY_S, "maximum": MAX_EXPIRY_S},
                            },
                        },
                    },
                }
            }
        },
    }
}


class FilePage(Body):
    """Which files are listed."""

    model_config = {"strict": False}

    after: str | None = Field(None, max_length=64)
    limit: int = Field(10_000, ge=1, le=10_000)
    order: Literal["asc", "desc"] = "desc"
    purpose: str | None = Field(None, max_length=64)


@router.post("/files", auth=scoped("batch"), summary="Upload a file", openapi_extra=_UPLOAD)
async def create_file(request: HttpRequest) -> HttpResponseBase:
    """A file of at most 200 MiB for a batch: lines of JSON."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    file = await in_database(uploads.receive, request, key)
    return json_response(objects.file_object(file))


@router.get("/files", auth=scoped("batch"), summary="List files")
async def list_files(request: HttpRequest, query: Query[FilePage]) -> HttpResponseBase:
    """The tenant's files, uploaded and written by batches."""

    def read() -> tuple[list[StoredFile], bool]:
        with tenant_scope(request.auth.tenant_id):  # type: ignore[attr-defined]
            rows = StoredFile.objects.all()
            if query.purpose is not None:
                rows = rows.filter(purpose=query.purpose)
            return pages.page(rows, PREFIX, query.after, query.limit, newest_first=query.order == "desc")

    return json_response(objects.file_list(*await in_database(read)))


@router.get("/files/{file_id}", auth=scoped("batch"), summary="Retrieve a file")
async def retrieve_file(request: HttpRequest, file_id: str) -> HttpResponseBase:
    """What is known of a file."""
    file = await in_database(find_file, request.auth, file_id)  # type: ignore[attr-defined]
    return json_response(objects.file_object(file))


@router.get("/files/{file_id}/content", auth=scoped("batch"), summary="Retrieve a file's content")
async def retrieve_file_content(request: HttpRequest, file_id: str) -> HttpResponseBase:
    """The bytes of a file."""
    file = await in_database(find_file, request.auth, file_id)  # type: ignore[attr-defined]
    if not await asyncio.to_thread(storage.path_of(file.tenant_id, file.pk).is_file):
        raise _not_found()
    headers = {"Content-Length": str(file.bytes), "Content-Disposition": "attachment"}
    content = storage.pieces(file.tenant_id, file.pk)
    return StreamingHttpResponse(content, content_type="application/octet-stream", headers=headers)


@router.delete("/files/{file_id}", auth=scoped("batch"), summary="Delete a file")
async def delete_file(request: HttpRequest, file_id: str) -> HttpResponseBase:
    """Delete a file. The input of a batch that has not ended stays."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    await in_database(_delete, key, file_id)
    return json_response(objects.FileDeleted(file_id))


def find_file(key: ApiKey, file_id: str) -> StoredFile:
    """A file of the key's tenant. Raises ApiError(not_found)."""
    id = objects.parse_id(file_id, PREFIX)
    with tenant_scope(key.tenant_id):
        file = StoredFile.objects.filter(pk=id).first() if id else None
    if file is None:
        raise _not_found()
    return file


def _delete(key: ApiKey, file_id: str) -> None:
    with tenant_scope(key.tenant_id):
        if not retention.delete_unless_read(find_file(key, file_id)):
            find_file(key, file_id)
            raise ApiError("invalid_value", "A batch that has not ended reads this file: cancel it first.", "file_id")


def _not_found() -> ApiError:
    return ApiError("not_found", "There is no such file: GET /v1/files lists those there are.", "file_id")


describe("post", "/v1/files", objects.FileObject)
describe("get", "/v1/files", objects.FileList)
describe("get", "/v1/files/{file_id}", objects.FileObject)
describe("delete", "/v1/files/{file_id}", objects.FileDeleted, refuses=True)
