"""`/members/`: a tenant's admin invites people, changes their roles, sees the API keys, and says who shares a cache.

Everything is looked up through the tenant in scope: an id of another tenant is answered like an unknown one. A new
secret waits in the session of the person who made it for the page that follows the redirect, which takes it out:
reloading neither makes a second one nor brings the first back.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.db.models import F
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from pagoda.tenants import invitations, memberships, privacy
from pagoda.tenants.forms import InviteForm, NewKeyForm
from pagoda.tenants.models import ApiKey, Invitation, Membership, Role, Tenant
from pagoda.tenants.views.access import TenantRequest, tenant_admin_required

SHOW_ONCE = "members_show_once"
USABLE_FIRST = (F("revoked").desc(nulls_first=True), "-created")
"""What can still be revoked is in sight, however much was revoked since."""


def page(request: TenantRequest, status: int = 200, **extra: Any) -> HttpResponse:
    """The page, with other forms or what is shown once in place of its usual content."""
    context = {
        "tenant": request.membership.tenant,
        "administered": request.administered,
        "roles": Role.choices,
        "cache_scopes": Tenant.CacheScope.choices,
        "members": Membership.objects.select_related("user").order_by("user__email"),
        "invitations": [each for each in Invitation.objects.select_related("invited_by")[:200] if each.is_open],
        "keys": ApiKey.objects.select_related("created_by").order_by(*USABLE_FIRST)[:200],
        "invite_form": InviteForm(),
        "key_form": NewKeyForm(),
    }
    response = render(request, "tenants/members.html", context | extra, status=status)
    response["Cache-Control"] = "no-store"
    return response


@require_GET
@tenant_admin_required
def members(request: TenantRequest) -> HttpResponse:
    made: dict[str, Any] = request.session.pop(SHOW_ONCE, {})
    if made.pop("tenant_id", None) != str(request.membership.tenant_id):
        made = {}  # another tenant was chosen in between
    return page(request, **made)


def show_once(request: TenantRequest, **made: Any) -> HttpResponse:
    """Lead to the page, which shows what was made this one time."""
    request.session[SHOW_ONCE] = made | {"tenant_id": str(request.membership.tenant_id)}
    return redirect("members")


@require_POST
@tenant_admin_required
def invite(request: TenantRequest) -> HttpResponse:
    form = InviteForm(request.POST)
    if not form.is_valid():
        return page(request, status=422, invite_form=form)
    try:
        invitation, link = invitations.invite(
            request.membership.tenant_id,
            form.cleaned_data["email"],
            form.cleaned_data["role"],
            invited_by=request.user,
            site=invitations.site_of(request),
        )
    except invitations.InvitationRefused as refusal:
        form.add_error("email", str(refusal))
        return page(request, status=422, invite_form=form)
    mailed = invitations.send(invitation, link)
    return show_once(request, new_link=link, new_email=invitation.email, mailed=mailed)


@require_POST
@tenant_admin_required
def revoke_invitation(request: TenantRequest, invitation_id: uuid.UUID) -> HttpResponse:
    invitations.revoke(get_object_or_404(Invitation.objects, pk=invitation_id), who=request.user)
    messages.success(request, _("The invitation's link no longer works."))
    return redirect("members")


@require_POST
@tenant_admin_required
def change_role(request: TenantRequest, membership_id: uuid.UUID) -> HttpResponse:
    membership: Membership = get_object_or_404(Membership.objects, pk=membership_id)
    role = request.POST.get("role", "")
    if role not in Role.values:
        messages.error(request, _("There is no such role."))
        return redirect("members")
    try:
        memberships.change_role(membership, role, who=request.user)
    except memberships.MembershipRefused as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, _("The role was changed."))
    return redirect("members")


@require_POST
@tenant_admin_required
def remove_member(request: TenantRequest, membership_id: uuid.UUID) -> HttpResponse:
    membership: Membership = get_object_or_404(Membership.objects, pk=membership_id)
    try:
        memberships.remove(membership, who=request.user)
    except memberships.MembershipRefused as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, _("The person is no longer a member."))
    return redirect("members")


@require_POST
@tenant_admin_required
def change_cache_scope(request: TenantRequest) -> HttpResponse:
    try:
        changed = privacy.change_cache_scope(
            request.membership.tenant, request.POST.get("cache_scope", ""), who=request.user
        )
    except ValueError:
        messages.error(request, _("There is no such choice."))
        return redirect("members")
    if changed:
        messages.success(request, _("It holds for every answer from now on."))
    return redirect("members")
