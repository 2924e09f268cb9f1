"""Tenants, their people, the keys and invitations they hand out, and the record of who changed what."""

from pagoda.tenants.models.access import ApiKey, Invitation
from pagoda.tenants.models.audit import AuditEntry
from pagoda.tenants.models.people import Membership, Role, Tenant, User

__all__ = ["ApiKey", "AuditEntry", "Invitation", "Membership", "Role", "Tenant", "User"]
