"""Inviting people: a link that works once, for one address, until it expires."""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from pagoda.tenants import audit
from pagoda.tenants.models import Invitation, Membership, Role, User
from pagoda.tenants.secrets import digest, new_secret


class InvitationRefused(Exception):
    """The message is one sentence for the person who tried."""


@transaction.atomic
def invite(
    tenant_id: uuid.UUID, email: str, role: str, *, invited_by: User | None, site: str = ""
) -> tuple[Invitation, str]:
    """A new invitation and its link below ``site``, the only time that the link can be seen.

    An open invitation of the same address to the same tenant is revoked: its link stops working.
    Raises InvitationRefused where the person is a member already.
    """
    email = email.strip().lower()
    if Membership.across_tenants.filter(tenant_id=tenant_id, user__email=email).exists():
        raise InvitationRefused(_("%(email)s is a member already.") % {"email": email})
    open_invitations = Invitation.across_tenants.filter(
        tenant_id=tenant_id, email=email, accepted__isnull=True, revoked__isnull=True
    )
    open_invitations.update(revoked=timezone.now())
    token = new_secret()
    invitation = Invitation.across_tenants.create(
        tenant_id=tenant_id,
        email=email,
        role=Role(role),
        token_hash=digest(token),
        invited_by=invited_by,
        expires=timezone.now() + timedelta(days=settings.PAGODA_INVITATION_DAYS),
    )
    audit.record("invitation.created", who=invited_by, tenant_id=tenant_id, email=email, role=role)
    return invitation, f"{site or settings.PAGODA_SITE_URL}{reverse('invitation', args=[token])}"


def site_of(request: HttpRequest) -> str:
    """Where a link made in this request leads: PAGODA_SITE_URL where it was set, else the address its maker is on."""
    if settings.PAGODA_SITE_URL_IS_SET:
        return settings.PAGODA_SITE_URL
    return request.build_absolute_uri("/").rstrip("/")


def send(invitation: Invitation, link: str) -> bool:
    """Mail the link, in the language of the page it was made on. False where no mail server is set up."""
    if not settings.PAGODA_SMTP_URL:
        return False
    context = {"invitation": invitation, "link": link}
    subject = _("You are invited to %(tenant)s on Pagoda") % {"tenant": invitation.tenant.name}
    body = render_to_string("tenants/invitation_mail.txt", context)
    return send_mail(subject, body, None, [invitation.email], fail_silently=True) == 1


def find(token: str) -> Invitation | None:
    """The open invitation behind a link (tenant loaded), or None: unknown, used, revoked, expired, or suspended."""
    invitation = (
        Invitation.across_tenants.select_related("tenant", "invited_by").filter(token_hash=digest(token)).first()
    )
    return invitation if invitation and invitation.is_open and invitation.tenant.is_active else None


@transaction.atomic
def accept(invitation: Invitation, user: User) -> Membership:
    """Make ``user`` a member. Raises InvitationRefused where the link was used meanwhile, or is not theirs."""
    if user.email != invitation.email:
        raise InvitationRefused(_("This invitation is for %(email)s.") % {"email": invitation.email})
    now = timezone.now()
    still_open = Invitation.across_tenants.filter(
        pk=invitation.pk, accepted__isnull=True, revoked__isnull=True, expires__gt=now
    )
    # The update decides: of two people who use the link at once, one finds a row to change.
    if not still_open.update(accepted=now):
        raise InvitationRefused(_("This invitation has been used or has expired."))
    membership, _made = Membership.across_tenants.get_or_create(
        tenant_id=invitation.tenant_id, user=user, defaults={"role": invitation.role}
    )
    audit.record("invitation.accepted", who=user, tenant_id=invitation.tenant_id, role=invitation.role)
    return membership


@transaction.atomic
def register(invitation: Invitation, name: str, password: str) -> User:
    """Make an account for the invited address and accept. Raises InvitationRefused where the address has one."""
    if User.objects.filter(email=invitation.email).exists():
        raise InvitationRefused(_("This address has an account: sign in first."))
    user = User.objects.create_user(invitation.email, password, name=name)
    accept(invitation, user)
    return user


@transaction.atomic
def revoke(invitation: Invitation, *, who: User) -> None:
    """The link stops working. Does nothing to one that was used."""
    changed = Invitation.across_tenants.filter(pk=invitation.pk, accepted__isnull=True, revoked__isnull=True).update(
        revoked=timezone.now()
    )
    if changed:
        audit.record("invitation.revoked", who=who, tenant_id=invitation.tenant_id, email=invitation.email)
