"""Identifiers of everything that leaves the system: unguessable, and in the order they were made."""

from __future__ import annotations

import uuid

from uuid_utils.compat import uuid7


def new_id() -> uuid.UUID:
    """A UUIDv7 (RFC 9562): 48 bits of time, 74 bits of chance."""
    return uuid7()
