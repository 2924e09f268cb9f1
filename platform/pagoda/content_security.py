"""The Content-Security-Policy of every page: strict for the chat, its own for the admin.

The admin's theme evaluates Alpine expressions, which needs ``unsafe-eval`` and inline styles; nothing that a
model or a member wrote is rendered there as markup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse

HEADER = "Content-Security-Policy"

_SHARED = {
    "default-src": "'self'",
    "base-uri": "'none'",
    "object-src": "'none'",
    "frame-ancestors": "'none'",
    "form-action": "'self'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
}

STRICT = _SHARED | {
    "script-src": "'self'",
    "style-src": "'self'",
}

ADMIN = _SHARED | {
    "script-src": "'self' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
}


def policy_for(request: HttpRequest) -> str:
    """The header's value. ``connect-src`` names the websocket: older Safari does not count it as 'self'."""
    policy = dict(ADMIN if request.path.startswith("/admin/") else STRICT)
    policy["connect-src"] = "'self'"
    with suppress(DisallowedHost):  # its answer is an error page, which was logged already and opens no websocket
        policy["connect-src"] += f" {'wss' if request.is_secure() else 'ws'}://{request.get_host()}"
    if settings.PAGODA_VITE_DEV:
        server = f"localhost:{settings.DJANGO_VITE['default']['dev_server_port']}"
        policy["script-src"] += f" http://{server} 'unsafe-inline'"
        policy["style-src"] += f" http://{server} 'unsafe-inline'"
        policy["connect-src"] += f" http://{server} ws://{server}"
    return "; ".join(f"{name} {value}" for name, value in policy.items())


class ContentSecurityPolicyMiddleware:
    """Sets the header where the view has not set its own. Works on either side of the sync/async line."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if self.is_async:
            return self._respond(request)
        return self._with_header(request, self.get_response(request))

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        return self._with_header(request, await self.get_response(request))

    @staticmethod
    def _with_header(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if HEADER not in response:
            response[HEADER] = policy_for(request)
        return response
