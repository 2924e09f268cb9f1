"""The input of a batch: one request a line, as JSON; read again and again, never held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.api.application import MAX_BODY_BYTES
from pagoda.api.errors import ApiError
from pagoda.api.strict_json import parse
from pagoda.batches.objects import BatchError

MAX_LINES = 50_000
MAX_ERRORS = 100
"""Told of one file."""
MAX_CUSTOM_ID = 512


@dataclass(frozen=True, slots=True)
class Line:
    """One request of a batch. number: of its line, from 1."""

    number: int
    custom_id: str
    body: dict[str, Any]


class BadLine(Exception):
    """What is wrong with a line."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param


def read(path: Path, endpoint: str, skip: Callable[[int], bool] = lambda number: False) -> Iterator[Line]:
    """The requests of a file that was checked. skip: of a line's number, whether it is left out unread."""
    for number, data in _lines(path):
        if not skip(number):
            yield _line(number, data, endpoint)


def check(path: Path, endpoint: str) -> tuple[int, list[BatchError]]:
    """How many requests a file has, and what is wrong with it: nothing, or up to MAX_ERRORS of its faults."""
    total = 0
    errors: list[BatchError] = []
    known: set[str] = set()
    for number, data in _lines(path):
        total += 1
        if total > MAX_LINES:
            return total, [*errors, BatchError("too_many_tasks", f"A batch may have {MAX_LINES} lines.", line=number)]
        try:
            line = _line(number, data, endpoint)
            if line.custom_id in known:
                raise BadLine("duplicate_custom_id", "This custom_id is there already.", "custom_id")
            known.add(line.custom_id)
        except BadLine as bad:
            errors.append(BatchError(bad.code, bad.message, bad.param, number))
            if len(errors) == MAX_ERRORS:
                break
    if not total:
        errors.append(BatchError("empty_file", "The file has no lines."))
    return total, errors


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, without their ends. One that is too long is given cut off, one byte above the most."""
    with path.open("rb") as file:
        number = 0
        while data := file.readline(MAX_BODY_BYTES + 1):
            number += 1
            rest = data
            while len(rest) > MAX_BODY_BYTES and not rest.endswith(b"\n"):
                rest = file.readline(MAX_BODY_BYTES + 1)
            if data.strip():
                yield number, data.rstrip(b"\r\n")


def _line(number: int, data: bytes, endpoint: str) -> Line:
    if len(data) > MAX_BODY_BYTES:
        raise BadLine("line_too_long", f"A line may have {MAX_BODY_BYTES >> 20} MiB at most.")
    try:
        value = parse(data)
    except ApiError as error:
        raise BadLine("invalid_json_line", error.body.error.message.replace("The body", "This line")) from None
    if not isinstance(value, dict):
        raise BadLine("invalid_json_line", "This line is not a JSON object.")
    for name in ("custom_id", "method", "url", "body"):
        if name not in value:
            raise BadLine("missing_required_parameter", f"This line has no {name}.", name)
    custom_id, body = value["custom_id"], value["body"]
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID:
        raise BadLine("invalid_value", f"custom_id must be a text of 1 to {MAX_CUSTOM_ID} characters.", "custom_id")
    if value["method"] != "POST":
        raise BadLine("invalid_method", "method must be POST.", "method")
    if value["url"] != endpoint:
        raise BadLine("invalid_url", f"url must be the batch's endpoint, {endpoint}.", "url")
    if not isinstance(body, dict):
        raise BadLine("invalid_value", "body must be a JSON object.", "body")
    return Line(number, custom_id, body)
