"""Requests to the API as Prometheus metrics: its addresses pass by the site's middleware, which counts all others."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

from django.urls import Resolver404, resolve
from prometheus_client import Counter, Histogram

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"})
OTHER = "other"
"""What stands for every address and method that the API does not know: whoever asks must not make time series."""

NO_STATUS = "none"
"""The caller hung up before there was a status."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

requests = Counter(
    "pagoda_api_requests", "Requests to the API that have ended", ("method", "route", "status"), registry=None
)
seconds = Histogram(
    "pagoda_api_request_seconds",
    "Time from a request to the API to the end of its answer, streams included",
    ("method", "route"),
    buckets=SECONDS,
    registry=None,
)


def measured(application: Application, prefix: str) -> Application:
    """The application, with what it answers below ``prefix`` ('/v1/') counted and timed."""

    async def measure(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if not f"{scope['path']}/".startswith(prefix):
            await application(scope, receive, send)
            return
        status = NO_STATUS

        async def note_status(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        begin = time.perf_counter()
        try:
            await application(scope, receive, note_status)
        except Exception:
            status = "500" if status == NO_STATUS else status  # the server's answer to a fault
            raise
        finally:
            method = scope["method"] if scope["method"] in METHODS else OTHER
            route = _route(scope["path"])
            requests.labels(method, route, status).inc()
            seconds.labels(method, route).observe(time.perf_counter() - begin)

    return measure


@lru_cache(maxsize=256)
def _route(path: str) -> str:
    """The pattern that an address is of, as '/v1/files/<file_id>'."""
    try:
        pattern = resolve(path).route
    except Resolver404:
        return OTHER
    # A regular expression is what catches the rest.
    return OTHER if pattern.startswith("^") else f"/{pattern}"
