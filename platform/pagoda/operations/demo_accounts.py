"""An operator and two tenants to try Pagoda with, each with a member and a tenant admin.

The passwords and keys are random, made once, and kept in ``PAGODA_HOME/demo.json`` (0600) so that they can be shown
again: the database has only their hashes. Accounts that were deleted stay deleted.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from django.db import transaction

from pagoda.tenants.keys import authenticate_key, create_key
from pagoda.tenants.models import Membership, Role, Tenant, User

OPERATOR = {"email": "operator@pagoda.example", "name": "Operator"}
TENANTS: tuple[dict[str, Any], ...] = (
    {
        "slug": "acme",
        "name": "Acme",
        "members": (("ada@acme.example", "Ada", Role.MEMBER), ("alan@acme.example", "Alan", Role.ADMIN)),
        "keys": ("app", "batch"),
    },
    {
        "slug": "globex",
        "name": "Globex",
        "members": (("grace@globex.example", "Grace", Role.MEMBER), ("barbara@globex.example", "Barbara", Role.ADMIN)),
        "keys": ("app",),
    },
)

NONE: dict[str, Any] = {"operator": None, "tenants": []}


def credentials_path(home: Path) -> Path:
    return home / "demo.json"


def known_accounts(home: Path) -> dict[str, Any]:
    """What `ensure_demo_accounts` returned last, without what was deleted since."""
    stored = _read(home) or NONE
    operator = stored["operator"]
    return {
        "operator": operator if operator and _find_user(operator["email"]) else None,
        "tenants": [
            entry | {"members": [member for member in entry["members"] if _find_user(member["email"])]}
            for entry in stored["tenants"]
            if Tenant.objects.filter(slug=entry["slug"]).exists()
        ],
    }


def ensure_demo_accounts(home: Path) -> dict[str, Any]:
    """Return ``{"operator": … or None, "tenants": […]}`` with working passwords and keys.

    Makes the accounts where there never were any, and again in an empty database. Otherwise what was deleted is left
    out; of what is there, a password that was changed or a key that was revoked is replaced. Repeating it changes
    nothing.
    """
    stored = _read(home)
    make = stored is None or not User.objects.exists()
    stored = stored or NONE
    with transaction.atomic():
        credentials = {
            "operator": _ensure_operator(stored["operator"] or {}, make=make),
            "tenants": [entry for wanted in TENANTS if (entry := _ensure_tenant(wanted, stored, make=make))],
        }
        # Inside the transaction: a key's text exists nowhere else, and a file without rows is mended next time.
        _write_private(credentials_path(home), json.dumps(credentials, indent=2))
    return credentials


def _read(home: Path) -> dict[str, Any] | None:
    try:
        return json.loads(credentials_path(home).read_text())
    except FileNotFoundError:
        return None


def _find_user(email: str) -> User | None:
    return User.objects.filter(email=email).first()


def _ensure_operator(known: dict[str, Any], *, make: bool) -> dict[str, Any] | None:
    user = _find_user(OPERATOR["email"])
    if user is None and not make:
        return None
    password = known.get("password") or secrets.token_urlsafe(12)
    if user is None:
        User.objects.create_superuser(OPERATOR["email"], password, name=OPERATOR["name"])
    else:
        _ensure_password(user, password)
    return {"email": OPERATOR["email"], "password": password}


def _ensure_password(user: User, password: str) -> None:
    if not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])


def _ensure_tenant(wanted: dict[str, Any], stored: dict[str, Any], *, make: bool) -> dict[str, Any] | None:
    """None for one that was deleted, also where another has its short name now."""
    known: dict[str, Any] = next((entry for entry in stored["tenants"] if entry["slug"] == wanted["slug"]), {})
    if make:
        tenant, _ = Tenant.objects.get_or_create(slug=wanted["slug"], defaults={"name": wanted["name"]})
    else:
        found = Tenant.objects.filter(slug=wanted["slug"]).first() if known else None
        if found is None:
            return None
        tenant = found
    members = [member for person in wanted["members"] if (member := _ensure_member(tenant, person, known, make=make))]
    texts = {entry["label"]: entry["key"] for entry in known.get("api_keys", [])}
    admins = [member["email"] for member in members if member["role"] == Role.ADMIN]
    created_by = _find_user(admins[0]) if admins else None
    return {
        "slug": tenant.slug,
        "members": members,
        "api_keys": [
            {"key": _ensure_key(tenant, label, texts.get(label), created_by), "label": label}
            for label in wanted["keys"]
        ],
    }


def _ensure_member(
    tenant: Tenant, person: tuple[str, str, str], known: dict[str, Any], *, make: bool
) -> dict[str, Any] | None:
    """None for a person who was deleted or has left the tenant."""
    email, name, role = person
    passwords = {entry["email"]: entry["password"] for entry in known.get("members", [])}
    password = passwords.get(email) or secrets.token_urlsafe(12)
    user = _find_user(email)
    if make:
        user = user or User.objects.create_user(email, password, name=name)
        Membership.across_tenants.get_or_create(tenant=tenant, user=user, defaults={"role": role})
    membership = Membership.across_tenants.filter(tenant=tenant, user=user).first() if user else None
    if user is None or membership is None:
        return None
    _ensure_password(user, password)
    return {"email": email, "password": password, "role": membership.role}


def _ensure_key(tenant: Tenant, label: str, text: str | None, created_by: User | None) -> str:
    if text:
        key = authenticate_key(text)
        if key is not None and key.tenant_id == tenant.id:
            return text
    return create_key(tenant.id, label, created_by=created_by)[1]


def _write_private(path: Path, text: str) -> None:
    """Whole or not at all, and never readable by others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)
