"""Who calls: the key in the Authorization header, looked up once in a while and checked against what it may do."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from django.http import HttpRequest
from ninja.security import HttpBearer

from pagoda.api.errors import ApiError
from pagoda.generations.database_threads import in_database
from pagoda.tenants.keys import authenticate_key
from pagoda.tenants.models import ApiKey
from pagoda.tenants.secrets import digest

REMEMBERED_S = 2.0
"""How long a key that was found is not looked up again: a revoked one works for so long at most."""
REMEMBERED_KEYS = 10_000

_remembered: OrderedDict[str, tuple[float, ApiKey]] = OrderedDict()


class KeyAuthentication(HttpBearer):
    """``Authorization: Bearer pgd_...``, with one of the scopes. The key is ``request.auth``, its tenant loaded."""

    openapi_scheme = "bearer"

    def __init__(self, *scopes: str) -> None:
        super().__init__()
        self.scopes = scopes

    def __call__(self, request: HttpRequest) -> Awaitable[ApiKey]:
        return self.authenticate(request, _bearer(request))

    is_async = True

    async def authenticate(self, request: HttpRequest, token: str) -> ApiKey:
        """Raises ApiError (401, 403)."""
        key = await find_key(token)
        require_scope(key, *self.scopes)
        return key


async def find_key(text: str) -> ApiKey:
    """The usable key that this text is. Raises ApiError(invalid_api_key)."""
    fingerprint = digest(text)
    known = _remembered.get(fingerprint)
    if known is not None and time.monotonic() - known[0] < REMEMBERED_S and known[1].is_usable:
        return known[1]
    key = await in_database(authenticate_key, text)
    if key is None:
        _remembered.pop(fingerprint, None)
        raise ApiError(
            "invalid_api_key",
            f"This API key ({masked(text)}) is not valid: unknown, revoked or expired, or its tenant is suspended.",
        )
    _remembered[fingerprint] = (time.monotonic(), key)
    _remembered.move_to_end(fingerprint)
    if len(_remembered) > REMEMBERED_KEYS:
        _remembered.popitem(last=False)
    return key


def forget_keys() -> None:
    """Look every key up again."""
    _remembered.clear()


def require_scope(key: ApiKey, *scopes: str) -> None:
    """Raises ApiError(insufficient_scope) where the key has none of the scopes."""
    if scopes and not any(key.allows(scope) for scope in scopes):
        needed = " or ".join(scopes)
        raise ApiError("insufficient_scope", f"This API key lacks the scope that this call needs: {needed}.")


def masked(text: str) -> str:
    """As much of a key as may be shown: what its list shows too. Other texts are not shown at all."""
    return f"{text[:12]}…" if text.startswith("pgd_") and len(text) > 24 else "pgd_…"


def _bearer(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise ApiError("invalid_api_key", "Send an API key: Authorization: Bearer pgd_…")
    return token


def scoped(*scopes: str) -> Callable[[HttpRequest], Awaitable[ApiKey]]:
    """The ``auth`` of a route whose callers need one of the scopes."""
    return KeyAuthentication(*scopes)
