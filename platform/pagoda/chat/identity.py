"""Who is at the other end of a socket, and in which tenant."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Q
from django.http.request import validate_host

from pagoda.tenants.keys import authenticate_key
from pagoda.tenants.models import ApiKey, Membership, Scope, Tenant, User

NOT_SIGNED_IN = 4401
NOT_A_MEMBER = 4403


class Rejected(Exception):
    """Whoever opened the socket may not use it. ``code``: why, as a close code of docs/websocket.md."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Identity:
    """A member working in one tenant, or an API key of it. Exactly one of user and api_key is set."""

    tenant: Tenant
    tenants: tuple[Tenant, ...]
    role: str
    user: User | None = None
    api_key: ApiKey | None = None
    session_key: str | None = None

    @property
    def sender(self) -> str:
        """The name under which client_ids are unique."""
        return f"user:{self.user.pk}" if self.user else f"key:{self.api_key.pk if self.api_key else ''}"

    @property
    def group(self) -> str:
        """The channel-layer group of everything this identity has open."""
        return f"chat.{self.tenant.pk.hex}.{self.sender.replace(':', '.')}"

    def owns(self) -> Q:
        """Narrows conversations to those of this identity."""
        return Q(owner=self.user) if self.user else Q(api_key=self.api_key)

    def owner_fields(self) -> dict[str, Any]:
        """Makes a new conversation this identity's own."""
        return {"owner": self.user, "api_key": self.api_key}

    def as_member(self) -> dict[str, Any]:
        """The ``member`` of a ``welcome``. An API key goes by its label."""
        if self.user is not None:
            fields = {"id": str(self.user.pk), "email": self.user.email, "name": self.user.name}
        elif self.api_key is not None:
            fields = {"id": str(self.api_key.pk), "email": "", "name": self.api_key.label}
        return fields | {"role": self.role}


def group_of(tenant_id: uuid.UUID, owner_id: uuid.UUID | None, api_key_id: uuid.UUID | None) -> str:
    """The group of whoever owns a conversation; the same as that ``Identity.group``."""
    sender = f"user.{owner_id}" if owner_id else f"key.{api_key_id}"
    return f"chat.{tenant_id.hex}.{sender}"


def identify_key(text: str, tenant_slug: str | None) -> Identity:
    """The key of this text. Raises Rejected. Uses the database."""
    key = authenticate_key(text)
    if key is None:
        raise Rejected(NOT_SIGNED_IN)
    if tenant_slug is not None and key.tenant.slug != tenant_slug:
        raise Rejected(NOT_A_MEMBER)
    if not key.allows(Scope.CHAT):
        raise Rejected(NOT_A_MEMBER)
    return Identity(tenant=key.tenant, tenants=(key.tenant,), role="member", api_key=key)


def identify_user(user: Any, session_key: str | None, tenant_slug: str | None) -> Identity:
    """The signed-in person, in the tenant named or the first of theirs. Raises Rejected. Uses the database."""
    if not isinstance(user, User) or not user.is_active:
        raise Rejected(NOT_SIGNED_IN)
    memberships = list(
        Membership.across_tenants.filter(user=user, tenant__is_active=True)
        .select_related("tenant")
        .order_by("tenant__name", "tenant_id")
    )
    for membership in memberships:
        if tenant_slug is None or membership.tenant.slug == tenant_slug:
            tenants = tuple(each.tenant for each in memberships)
            return Identity(membership.tenant, tenants, membership.role, user=user, session_key=session_key)
    raise Rejected(NOT_A_MEMBER)


def same_origin(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a page of this site opened the socket.

    A browser sends cookies with a socket that any page opens (cross-site websocket hijacking), and always the page's
    origin with it. The scheme is not compared: behind a proxy it is not ours to see.
    """
    named = dict(headers)
    origin = urlsplit(named.get(b"origin", b"").decode("latin-1"))
    host = named.get(b"host", b"").decode("latin-1").lower()
    if origin.scheme not in ("http", "https") or not origin.netloc:
        return False
    if f"{origin.scheme}://{origin.netloc}" in settings.CSRF_TRUSTED_ORIGINS:
        return True
    name = urlsplit(f"//{host}").hostname or ""
    return origin.netloc.lower() == host and validate_host(f"[{name}]" if ":" in name else name, settings.ALLOWED_HOSTS)
