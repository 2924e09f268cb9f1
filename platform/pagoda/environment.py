"""Typed reads of the process environment. An empty variable counts as unset, as in a Compose file."""

from __future__ import annotations

import os

from django.core.exceptions import ImproperlyConfigured

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})


def read_text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def read_flag(name: str, default: bool = False) -> bool:
    value = read_text(name).lower()
    if not value:
        return default
    if value in TRUE or value in FALSE:
        return value in TRUE
    raise ImproperlyConfigured(f"{name}={value!r} is neither true nor false: use 1 or 0")


def read_number(name: str, default: int, minimum: int = 0) -> int:
    value = read_text(name)
    try:
        number = int(value) if value else default
    except ValueError:
        raise ImproperlyConfigured(f"{name}={value!r} is not a whole number") from None
    if number < minimum:
        raise ImproperlyConfigured(f"{name}={number} is below {minimum}")
    return number


def read_words(name: str) -> list[str]:
    """A comma-separated list."""
    return [word.strip() for word in read_text(name).split(",") if word.strip()]
