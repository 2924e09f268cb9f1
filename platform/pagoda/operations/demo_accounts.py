"""An operator and two tenants to try Pagoda with.

The passwords and keys are random, made once, and kept in ``PAGODA_HOME/demo.json`` (0600) so that they can be shown
again: the database has only their hashes.
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
TENANTS = (
    {"slug": "acme", "name": "Acme", "member": ("ada@acme.example", "Ada"), "keys": ("app", "batch")},
    {"slug": "globex", "name": "Globex", "member": ("grace@globex.example", "Grace"), "keys": ("app",)},
)


def credentials_path(home: Path) -> Path:
    return home / "demo.json"


def read_credentials(home: Path) -> dict[str, Any] | None:
    """What `ensure_demo_accounts` stored, or None: there are no demo accounts."""
    try:
        return json.loads(credentials_path(home).read_text())
    except FileNotFoundError:
        return None


def ensure_demo_accounts(home: Path) -> dict[str, Any]:
    """Make what is missing and return ``{"operator": …, "tenants": […]}`` with working passwords and keys.

    Repeating it changes nothing. A password that was changed, or a key that was revoked, is replaced.
    """
    stored = read_credentials(home) or {"operator": {}, "tenants": []}
    with transaction.atomic():
        password = _ensure_user(OPERATOR["email"], OPERATOR["name"], stored["operator"].get("password"), operator=True)
        credentials = {
            "operator": {"email": OPERATOR["email"], "password": password},
            "tenants": [_ensure_tenant(wanted, stored) for wanted in TENANTS],
        }
        # Inside the transaction: a key's text exists nowhere else, and a file without rows is mended next time.
        _write_private(credentials_path(home), json.dumps(credentials, indent=2))
    return credentials


def _ensure_user(email: str, name: str, password: str | None, *, operator: bool = False) -> str:
    password = password or secrets.token_urlsafe(12)
    user = User.objects.filter(email=email).first()
    if user is None:
        create = User.objects.create_superuser if operator else User.objects.create_user
        create(email, password, name=name)
    elif not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    return password


def _ensure_tenant(wanted: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = next((entry for entry in stored["tenants"] if entry["slug"] == wanted["slug"]), {})
    email, name = wanted["member"]
    passwords = {member["email"]: member["password"] for member in known.get("members", [])}
    password = _ensure_user(email, name, passwords.get(email))
    tenant, _ = Tenant.objects.get_or_create(slug=wanted["slug"], defaults={"name": wanted["name"]})
    member = User.objects.get(email=email)
    membership, _ = Membership.across_tenants.get_or_create(tenant=tenant, user=member, defaults={"role": Role.MEMBER})
    texts = {entry["label"]: entry["key"] for entry in known.get("api_keys", [])}
    return {
        "slug": tenant.slug,
        "members": [{"email": email, "password": password, "role": membership.role}],
        "api_keys": [
            {"key": _ensure_key(tenant, label, texts.get(label), member), "label": label} for label in wanted["keys"]
        ],
    }


def _ensure_key(tenant: Tenant, label: str, text: str | None, created_by: User) -> str:
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
