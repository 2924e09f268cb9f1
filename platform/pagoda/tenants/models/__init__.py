"""Tenants, their people, the keys and invitations they hand out, and the record of who changed what."""

from pagoda.tenants.models.access import ApiKey, Invitation, Scope
from pagoda.tenants.models.audit import AuditEntry
from pagoda.tenants.models.limits import LIMITS, Limits
from pagoda.tenants.models.people import Membership, Role, Tenant, User

__all__ = [
    "LIMITS",
    "ApiKey",
    "AuditEntry",
    "Invitation",
    "Limits",
    "Membership",
    "Role",
    "Scope",
    "Tenant",
    "User",
]
