"""Writing the record of who changed what."""

from __future__ import annotations

import uuid
from typing import Any

from pagoda.tenants.models import AuditEntry, User


def record(what: str, *, who: User | None, tenant_id: uuid.UUID | None = None, **details: Any) -> AuditEntry:
    """Write one entry in the caller's transaction: the act and its record stand or fall together.

    ``details`` are ids, names and numbers (JSON), never the text of a message or a secret.
    """
    return AuditEntry.across_tenants.create(what=what, who=who, tenant_id=tenant_id, details=details)
