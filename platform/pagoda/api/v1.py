"""Version 1 of the API: its routers, its errors and its description."""

from __future__ import annotations

import logging
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja.errors import HttpError, ValidationError

from pagoda.api import chat, completions, embeddings, model_list, responses, tokens
from pagoda.api.errors import ApiError, for_status
from pagoda.api.openapi import DescribedAPI
from pagoda.api.strict_json import StrictParser
from pagoda.api.validation import as_error

logger = logging.getLogger(__name__)

api = DescribedAPI(
    title="Pagoda",
    version="1.0.0",
    description="The wire format of OpenAI's API, over the models of this installation.",
    urls_namespace="api",
    parser=StrictParser(),
)
for resource in (model_list, chat, completions, responses, embeddings, tokens):
    api.add_router("", resource.router)


@api.exception_handler(ApiError)
def answer_api_error(request: HttpRequest, error: ApiError | type[ApiError]) -> HttpResponse:
    assert isinstance(error, ApiError)
    return error.response()


@api.exception_handler(ValidationError)
def answer_validation_error(request: HttpRequest, error: Any) -> HttpResponse:
    return as_error(request, error).response()


@api.exception_handler(HttpError)
def answer_http_error(request: HttpRequest, error: Any) -> HttpResponse:
    """Ninja's own, among them any failure of the parser, which it wraps."""
    cause = error.__cause__
    return (cause if isinstance(cause, ApiError) else for_status(error.status_code)).response()


@api.exception_handler(Http404)
def answer_not_found(request: HttpRequest, error: Any) -> HttpResponse:
    return for_status(404).response()


@api.exception_handler(Exception)
def answer_failure(request: HttpRequest, error: Any) -> HttpResponse:
    """A fault of the server: told to the log, and to the caller that it is one."""
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    return for_status(500).response()
