"""/v1/batches: made, looked at, listed and cancelled. The worker carries them out."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from ninja import Query, Router

from pagoda.api import idempotency
from pagoda.api.authentication import scoped
from pagoda.api.errors import ApiError, json_response
from pagoda.api.openapi import describe
from pagoda.batches import objects, pages, quota
from pagoda.batches.file_routes import find_file
from pagoda.batches.models import Batch, StoredFile
from pagoda.batches.models.batches import FINAL, PREFIX, Status
from pagoda.batches.requests import BatchPage, BatchRequest
from pagoda.batches.tasks import run_batches
from pagoda.generations.database_threads import in_database
from pagoda.tenants.models import ApiKey
from pagoda.tenants.scoping import tenant_scope

logger = logging.getLogger(__name__)

router = Router(tags=["Batches"])

WINDOW = timedelta(hours=24)


@router.post("/batches", auth=scoped("batch"), summary="Create a batch")
async def create_batch(request: HttpRequest, body: BatchRequest) -> HttpResponseBase:
    """Have the requests of a file carried out within 24 hours."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]

    async def answer() -> HttpResponseBase:
        return json_response(objects.batch_object(await in_database(_create, key, body)))

    return await idempotency.once(request, answer)


@router.get("/batches", auth=scoped("batch"), summary="List batches")
async def list_batches(request: HttpRequest, query: Query[BatchPage]) -> HttpResponseBase:
    """The tenant's batches, the newest first."""

    def read() -> tuple[list[Batch], bool]:
        with tenant_scope(request.auth.tenant_id):  # type: ignore[attr-defined]
            return pages.page(Batch.objects.all(), PREFIX, query.after, query.limit)

    return json_response(objects.batch_list(*await in_database(read)))


@router.get("/batches/{batch_id}", auth=scoped("batch"), summary="Retrieve a batch")
async def retrieve_batch(request: HttpRequest, batch_id: str) -> HttpResponseBase:
    """A batch, and how far it has come."""
    batch = await in_database(_find, request.auth, batch_id)  # type: ignore[attr-defined]
    return json_response(objects.batch_object(batch))


@router.post("/batches/{batch_id}/cancel", auth=scoped("batch"), summary="Cancel a batch")
async def cancel_batch(request: HttpRequest, batch_id: str) -> HttpResponseBase:
    """End a batch. What is written is kept; what is under way is stopped."""
    batch = await in_database(_cancel, request.auth, batch_id)  # type: ignore[attr-defined]
    return json_response(objects.batch_object(batch))


def _create(key: ApiKey, body: BatchRequest) -> Batch:
    now = timezone.now()
    with tenant_scope(key.tenant_id), transaction.atomic():
        try:
            file = find_file(key, body.input_file_id)
        except ApiError as error:
            raise ApiError("not_found", error.body.error.message, "input_file_id") from None
        # Not deleted between this look and the batch's row.
        if StoredFile.objects.select_for_update().filter(pk=file.pk).first() is None:
            raise ApiError("not_found", "This file was deleted just now.", "input_file_id")
        if file.purpose != StoredFile.Purpose.BATCH:
            raise ApiError("invalid_value", "A batch reads a file whose purpose is batch.", "input_file_id")
        space = quota.space()
        if space.is_full:
            raise ApiError(quota.CODE, quota.is_full(space))
        expiry = body.output_expires_after
        batch = Batch.objects.create(
            tenant=key.tenant,
            api_key=key,
            endpoint=body.endpoint,
            input_file=file.pk,
            metadata=body.metadata,
            output_expires_after=None if expiry is None else expiry.seconds,
            created=now,
            expires=now + WINDOW,
        )
        transaction.on_commit(run_soon)
        return batch


def _find(key: ApiKey, batch_id: str) -> Batch:
    id = objects.parse_id(batch_id, PREFIX)
    with tenant_scope(key.tenant_id):
        batch = Batch.objects.filter(pk=id).first() if id else None
    if batch is None:
        raise ApiError("not_found", "There is no such batch: GET /v1/batches lists those there are.", "batch_id")
    return batch


def _cancel(key: ApiKey, batch_id: str) -> Batch:
    with tenant_scope(key.tenant_id), transaction.atomic():
        batch = Batch.objects.select_for_update().get(pk=_find(key, batch_id).pk)
        if batch.status in (Status.CANCELLING, Status.CANCELLED):
            return batch
        if batch.status in FINAL or batch.status == Status.FINALIZING:
            raise ApiError("invalid_value", f"This batch is {batch.status}: it cannot be cancelled.", "batch_id")
        batch.status = Status.CANCELLING
        batch.cancelling_at = timezone.now()
        batch.save(update_fields=["status", "cancelling_at"])
        transaction.on_commit(run_soon)
        return batch


def run_soon() -> None:
    """Have the worker look for batches. Without a broker its timetable does, a little later."""
    try:
        run_batches.delay()
    except Exception as error:
        logger.warning("the worker was not told of a batch: %r", error)


describe("post", "/v1/batches", objects.BatchObject, repeatable=True)
describe("get", "/v1/batches", objects.BatchList)
describe("get", "/v1/batches/{batch_id}", objects.BatchObject)
describe("post", "/v1/batches/{batch_id}/cancel", objects.BatchObject, refuses=True)
