"""The API's way into Django: bodies with a limit, no session, no cookies, and every answer in the API's format."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from pagoda.api.errors import JSON, ApiError, for_status
from pagoda.api.keep_alive import KeepAlive, Send
from pagoda.content_security import ContentSecurityPolicyMiddleware

logger = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

PREFIX = "/v1/"
MAX_BODY_BYTES = 16 << 20
"""Of a request's body, where ``body_limits`` has nothing else."""

DISCARD_BYTES = 256 << 20
DISCARD_S = 10.0
"""How much of a body that is too large is taken in, and thrown away, before the connection is closed."""

body_limits: dict[str, Callable[[], int]] = {}
"""Path -> the most bytes of a body there. Applications that take files add to it."""

gates: dict[str, Callable[[HttpRequest], Awaitable[object]]] = {}
"""Path -> what raises ApiError for callers whose body is not taken in there, by their headers alone. Django spools a
body to the disk before it asks a route who may call it: where bodies are large, that is asked before."""


class ApiRequest(ASGIRequest):
    """A request whose size was checked while it arrived."""

    @property
    def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = self.read()
            self._stream = BytesIO(self._body)
        return self._body


class ApiHandler(ASGIHandler):
    """Django, with what the API needs of its middleware, and one thread for what Django does in threads."""

    request_class = ApiRequest

    def __init__(self) -> None:
        super().__init__()
        self._thread = ThreadSensitiveContext()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Django begins and ends a thread of its own for each request, to send signals and close the response in, and
        both hold up everybody on the loop. Nothing here needs a thread for long: all requests share one."""
        token = SyncToAsync.thread_sensitive_context.set(self._thread)
        try:
            await super().__call__(scope, receive, send)
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)

    def load_middleware(self, is_async: bool = False) -> None:
        """Two, neither of which needs a thread; the site's would take some for every request."""
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        handler = convert_exception_to_response(self._get_response_async)  # type: ignore[attr-defined]
        handler = convert_exception_to_response(ContentSecurityPolicyMiddleware(handler))
        self._middleware_chain = finished(handler)


def finished(get_response: Callable[[HttpRequest], Any]) -> Callable:
    """Gives every response its request id, and what Django answers by itself the API's format."""

    async def respond(request: HttpRequest) -> HttpResponseBase:
        request_id = f"req_{uuid.uuid4().hex}"
        request.request_id = request_id  # type: ignore[attr-defined]
        response = await get_response(request)
        if response.status_code >= 400 and response.headers.get("content-type") != JSON:
            replacement = for_status(response.status_code).response()
            if "allow" in response.headers:
                replacement["allow"] = response.headers["allow"]
            response = replacement
        if response.status_code >= 500:
            logger.error("%s %s: %d (%s)", request.method, request.path, response.status_code, request_id)
        response["x-request-id"] = request_id
        response["x-content-type-options"] = "nosniff"
        if "cache-control" not in response.headers:
            response["cache-control"] = "no-store"
        if settings.SECURE_HSTS_SECONDS and request.is_secure():
            response["strict-transport-security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
        return response

    return respond


class _TooLarge(Exception):
    pass


def with_api(site: Application) -> Application:
    """The application for HTTP: the API's addresses by ``ApiHandler``, all others by ``site``."""
    handler = ApiHandler()

    async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if not f"/{scope['path'].lstrip('/')}/".startswith(PREFIX):
            await site(scope, receive, send)
            return
        limit = _limit_for(scope["path"])
        if _announced(scope) > limit:
            await _refuse(scope, receive, send, _too_large(limit))
            return
        refusal = await _stopped_at_gate(scope)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        read = 0

        async def receive_within_limit() -> Mapping[str, Any]:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise _TooLarge
            return message

        kept_alive = KeepAlive(send, settings.PAGODA_API_KEEP_ALIVE_S)
        try:
            await handler(scope, receive_within_limit, kept_alive.send)
        except _TooLarge:
            await _refuse(scope, receive, send, _too_large(limit))
        finally:
            kept_alive.close()

    return application


def _limit_for(path: str) -> int:
    limit = body_limits.get(path.rstrip("/"))
    return MAX_BODY_BYTES if limit is None else limit()


def _announced(scope: dict[str, Any]) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _too_large(limit: int) -> ApiError:
    return ApiError("request_too_large", f"The body may have {limit >> 20} MiB at most ({limit} bytes).")


async def _stopped_at_gate(scope: dict[str, Any]) -> ApiError | None:
    gate = gates.get(scope["path"].rstrip("/"))
    try:
        if gate is not None:
            await gate(ASGIRequest(scope, BytesIO()))
    except ApiError as refusal:
        return refusal
    except Exception:
        logger.exception("%s %s: at the gate", scope["method"], scope["path"])
        return for_status(500)
    return None


async def _refuse(scope: dict[str, Any], receive: Receive, send: Send, error: ApiError) -> None:
    """Answer without the body, which is taken in, thrown away, and never stored."""

    async def refused(request: HttpRequest) -> HttpResponseBase:
        return error.response()

    response = await finished(refused)(ASGIRequest(scope, BytesIO()))
    # The rest of the body is on its way: this connection cannot carry another request.
    response["connection"] = "close"
    headers = [(name.lower().encode(), value.encode("latin1")) for name, value in response.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": error.response().content, "more_body": True})
    # Most clients read no answer before they have sent everything: closed at once, they would see a broken connection.
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_S):
            discarded = 0
            while discarded < DISCARD_BYTES and (message := await receive()).get("more_body"):
                discarded += len(message["body"])
    await send({"type": "http.response.body"})
