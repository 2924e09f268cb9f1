"""The HTTP response of calls under way: one body at the end, or a stream from the first token on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from pagoda.api import idempotency
from pagoda.api.errors import ApiError, json_response
from pagoda.api.event_stream import EventStream, ended_by_error
from pagoda.api.limit_errors import rate_headers
from pagoda.api.running import Running
from pagoda.tenants.models import ApiKey

Prepared = TypeVar("Prepared")


class Body(Protocol):
    """What is asked of an endpoint that writes answers."""

    stream: bool | None


B = TypeVar("B", bound=Body)


async def answered(
    request: HttpRequest,
    body: B,
    *,
    prepare: Callable[[B, ApiKey], Awaitable[Prepared]],
    begin: Callable[[Prepared], Awaitable[Running]],
    whole: Callable[[Prepared, Running], Awaitable[Any]],
    streamed: Callable[[Prepared, Running], AsyncGenerator[bytes, None]],
) -> HttpResponseBase:
    """A request made ready, begun, and answered as its body wants it; once for its ``Idempotency-Key``."""

    async def answer() -> HttpResponseBase:
        prepared = await prepare(body, request.auth)  # type: ignore[attr-defined]
        calls = await begin(prepared)
        return await _reply(
            calls,
            whole=None if body.stream else lambda: whole(prepared, calls),
            streamed=lambda: streamed(prepared, calls),
        )

    return await idempotency.once(request, answer)


async def _reply(
    calls: Running,
    *,
    whole: Callable[[], Awaitable[Any]] | None,
    streamed: Callable[[], AsyncGenerator[bytes, None]],
) -> HttpResponseBase:
    """``whole`` where it is given, else ``streamed``. Whatever happens, no call goes on without a reader.

    A stream's status is sent once the engine has taken the prompts in, and not later than its first sign of life: what
    the engine refuses at once has a status of its own. Raises ApiError.
    """
    headers = rate_headers(calls.rates)
    try:
        if whole is not None:
            async with calls:
                return json_response(await whole(), headers=headers)
        await calls.admitted(settings.PAGODA_API_KEEP_ALIVE_S)
    except BaseException as error:
        calls.close()
        if isinstance(error, ApiError):
            error.headers |= headers
        raise
    return EventStream(ended_by_error(streamed()), calls.close, headers)
