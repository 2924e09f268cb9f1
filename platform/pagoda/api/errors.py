"""What the API answers when it does not do what it was asked: one format, whatever went wrong and wherever."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from django.http import HttpResponse

JSON = "application/json"

ERROR_CODES: dict[str, int] = {
    "invalid_value": 400,
    "invalid_json": 400,
    "unknown_field": 400,
    "missing_field": 400,
    "unsupported_value": 400,
    "not_supported_by_model": 400,
    "context_length_exceeded": 400,
    "kv_limit_exceeded": 400,
    "file_quota_exceeded": 400,
    "idempotency_key_reused": 400,
    "invalid_api_key": 401,
    "insufficient_scope": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method_not_allowed": 405,
    "idempotency_in_progress": 409,
    "request_too_large": 413,
    "unsupported_media_type": 415,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "queue_full": 429,
    "internal_error": 500,
    "model_error": 500,
    "engine_unavailable": 503,
}
"""Every code that an error may carry, with its status. docs/api.md describes each."""

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 409: "conflict_error"}
_RETRY_AFTER_S = 2
"""Where nothing better is known."""


class ErrorDetail(msgspec.Struct, frozen=True):
    """What happened, which limit, and what to do. ``param``: the field, as a path like ``messages[0].role``."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class ApiError(Exception):
    """An answer that is not a success.

    code: one of ERROR_CODES, which gives the status. retry_after_s: seconds after which trying again makes sense; a
    default is sent with 429 and 503. hopeless: it never does, and clients that would try again by themselves are told
    so. headers: others to send.
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        retry_after_s: float | None = None,
        hopeless: bool = False,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.status = ERROR_CODES[code]
        self.body = ErrorBody(ErrorDetail(message, _type_of(self.status, code), param, code))
        self.headers = dict(headers or {})
        if hopeless:
            self.headers["x-should-retry"] = "false"
        elif self.status in (429, 503) or retry_after_s is not None:
            self.headers["Retry-After"] = str(math.ceil(retry_after_s or _RETRY_AFTER_S))

    def response(self) -> HttpResponse:
        """The error as an HTTP response."""
        return json_response(self.body, status=self.status, headers=self.headers)

    def event(self) -> bytes:
        """The error as JSON, for a stream that has begun and cannot change its status any more."""
        return msgspec.json.encode(self.body)


def json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """``body`` (a msgspec struct, or what msgspec can encode) as a JSON response."""
    return HttpResponse(msgspec.json.encode(body), status=status, content_type=JSON, headers=headers)


def for_status(status: int) -> ApiError:
    """The error for an answer that Django made by itself."""
    if status == 404:
        return ApiError("not_found", "There is nothing at this address: docs are at /v1/docs.")
    if status == 405:
        return ApiError("method_not_allowed", "This address does not take this method: docs are at /v1/docs.")
    if status == 413:
        return ApiError("request_too_large", "The request's body is too large.")
    if 400 <= status < 500:
        return ApiError("invalid_value", "The request is malformed.")
    return ApiError("internal_error", "The server failed. The request id tells operators where to look.")


def _type_of(status: int, code: str) -> str:
    if code in ("rate_limit_exceeded", "queue_full"):
        return "rate_limit_error"
    if code == "insufficient_quota":
        return "insufficient_quota"
    if status >= 500:
        return "server_error"
    return _TYPES.get(status, "invalid_request_error")
