"""Results of lines: written once, with the settlement they belong to, by whoever holds the batch's lease."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import F

from pagoda.api.engine_errors import refused
from pagoda.api.errors import ApiError
from pagoda.batches.input_file import Line
from pagoda.batches.line_run import LineRun
from pagoda.batches.models import Batch, BatchLine
from pagoda.generations.models import Generation
from pagoda.tenants.scoping import tenant_scope
from pagoda_inference.protocol import Error

WAITED_FOR = frozenset({"rate_limit_exceeded", "queue_full", "engine_unavailable", "invalid_api_key"})
"""Errors that are no fault of the line: it is tried again. (A key that is not valid any more ends the batch.)"""


class LineResponse(msgspec.Struct, frozen=True):
    """What the endpoint would have answered."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class LineError(msgspec.Struct, frozen=True):
    code: str
    message: str


class OutputLine(msgspec.Struct, frozen=True):
    """One line of an output file or an error file."""

    id: str
    custom_id: str
    response: LineResponse | None
    error: LineError | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line's result goes: its batch, as ``owner`` holds it."""

    batch: Batch
    owner: str
    line: Line


_under_way: dict[uuid.UUID, tuple[Place, LineRun]] = {}


class Expected:
    """From the begin of the block on, the settlements of the line's calls write its result: one that is under way when
    the block is left, too."""

    def __init__(self, place: Place, run: LineRun) -> None:
        self._place, self._run = place, run

    def __enter__(self) -> None:
        for call in self._run.calls:
            _under_way[uuid.UUID(call.id)] = (self._place, self._run)

    def __exit__(self, *_: object) -> None:
        for call in self._run.calls:
            if call.ended:
                _under_way.pop(uuid.UUID(call.id), None)


def write_with_settlement(generation: Generation, **_: Any) -> None:
    """For ``generation_settled``: inside its transaction, under the tenant's scope."""
    if generation.purpose != Generation.Purpose.BATCH or generation.pk not in _under_way:
        return
    place, run = _under_way[generation.pk]
    transaction.on_commit(partial(_under_way.pop, generation.pk, None))
    if generation.state == Generation.State.COMPLETE:
        if run.settled(generation) and _write(place, True, answered(place.line.custom_id, run.answer())):
            transaction.on_commit(run.note_written)
    elif generation.state == Generation.State.FAILED and generation.error and len(run.calls) == 1:
        error = refused(msgspec.convert(generation.error, Error), run.grammar_param)
        if error.body.error.code not in WAITED_FOR:
            _write(place, False, failed(place.line.custom_id, error))


def write_error(place: Place, error: ApiError) -> None:
    """The result of a line that no call was settled for. Nothing where it has one already."""
    with tenant_scope(place.batch.tenant_id), transaction.atomic():
        if not has_result(place):
            _write(place, False, failed(place.line.custom_id, error))


def has_result(place: Place) -> bool:
    """Whether the line is done. In the tenant's scope."""
    return BatchLine.objects.filter(batch=place.batch, number=place.line.number).exists()


def answered(custom_id: str, body: bytes) -> str:
    """A line of the output file."""
    return _text(custom_id, LineResponse(200, _request_id(), msgspec.Raw(body)))


def failed(custom_id: str, error: ApiError) -> str:
    """A line of the error file: what the endpoint would have answered."""
    body = msgspec.Raw(msgspec.json.encode(error.body))
    return _text(custom_id, LineResponse(error.status, _request_id(), body))


def not_run(custom_id: str, outcome: str) -> str:
    """A line of the error file: the batch ended before its turn."""
    if outcome == "expired":
        error = LineError("batch_expired", "This request could not be executed before the completion window expired.")
    else:
        error = LineError("batch_cancelled", "This request was not executed: the batch was cancelled.")
    return _text(custom_id, None, error)


def _write(place: Place, ok: bool, text: str) -> bool:
    """Count the line and keep its text; False where the lease is somebody else's by now."""
    held = Batch.objects.filter(pk=place.batch.pk, lease_owner=place.owner)
    counted = held.update(completed=F("completed") + 1) if ok else held.update(failed=F("failed") + 1)
    if counted:
        BatchLine.objects.create(
            tenant=place.batch.tenant, batch=place.batch, number=place.line.number, ok=ok, text=text
        )
    return bool(counted)


def _text(custom_id: str, response: LineResponse | None, error: LineError | None = None) -> str:
    line = OutputLine(f"batch_req_{uuid.uuid4().hex}", custom_id, response, error)
    return msgspec.json.encode(line).decode()


def _request_id() -> str:
    return f"req_{uuid.uuid4().hex}"
