"""The demo logins as a text for people."""

from __future__ import annotations

from typing import Any


def logins(credentials: dict[str, Any]) -> str:
    """One line per person, one per key; '' where there are none. ``credentials`` as `ensure_demo_accounts` returns."""
    operator = credentials["operator"]
    lines = [_line("operator", operator["email"], operator["password"])] if operator else []
    for tenant in credentials["tenants"]:
        for member in tenant["members"]:
            lines.append(_line(f"{tenant['slug']} {member['role']}", member["email"], member["password"]))
    for tenant in credentials["tenants"]:
        for key in tenant["api_keys"]:
            lines.append(_line(f"{tenant['slug']} API key", key["label"], key["key"]))
    return "\n".join(lines)


def _line(who: str, name: str, secret: str) -> str:
    return f"  {who:<16} {name:<24} {secret}"
