"""Changing who is in a tenant and as what. A tenant always keeps an admin."""

from __future__ import annotations

from django.db import transaction
from django.utils.translation import gettext as _

from pagoda.tenants import audit
from pagoda.tenants.models import Membership, Role, Tenant, User


class MembershipRefused(Exception):
    """The message is one sentence for the person who tried."""


def memberships_of(user: User) -> list[Membership]:
    """The user's memberships in active tenants (tenant loaded), the oldest first: the first is the default one."""
    rows = Membership.across_tenants.select_related("tenant").filter(user=user, tenant__is_active=True)
    return list(rows.order_by("created", "id"))


def membership_in(user: User, slug: str | None) -> Membership | None:
    """The user's membership in the tenant of that name; in the default one without a name; None without any."""
    return next((each for each in memberships_of(user) if slug in (None, "", each.tenant.slug)), None)


@transaction.atomic
def change_role(membership: Membership, role: str, *, who: User) -> None:
    """Raises MembershipRefused where the tenant would be left without an admin."""
    if membership.role == role:
        return
    if Role(role) is not Role.ADMIN:
        _keep_an_admin(membership)
    membership.role = Role(role)
    membership.save(update_fields=["role"])
    audit.record("member.role", who=who, tenant_id=membership.tenant_id, member=str(membership.user_id), role=role)


@transaction.atomic
def remove(membership: Membership, *, who: User) -> None:
    """The person is no longer in the tenant; their account and their conversations stay. Raises MembershipRefused."""
    _keep_an_admin(membership)
    audit.record("member.removed", who=who, tenant_id=membership.tenant_id, member=str(membership.user_id))
    membership.delete()


def _keep_an_admin(leaving: Membership) -> None:
    if leaving.role != Role.ADMIN:
        return
    # The tenant's row serialises two admins who demote each other.
    Tenant.objects.select_for_update().get(pk=leaving.tenant_id)
    others = Membership.across_tenants.filter(tenant_id=leaving.tenant_id, role=Role.ADMIN).exclude(pk=leaving.pk)
    if not others.exists():
        raise MembershipRefused(_("A tenant needs an admin: make somebody else one first."))
