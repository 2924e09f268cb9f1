"""`/members/`: a tenant's admin invites people, changes their roles, hands out API keys, and says who shares a cache.

Everything is looked up through the tenant in scope: an id of another tenant is answered like an unknown one. A new
secret waits in the session of the person who made it for the page that follows the redirect, which takes it out:
reloading neither makes a second one nor brings the first back.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from pagoda.tenants import invitations, keys, memberships, privacy
from pagoda.tenants.forms import InviteForm, KeyForm
from pagoda.tenants.models import ApiKey, Invitation, Membership, Role, Tenant
from pagoda.tenants.views.access import TenantRequest, tenant_admin_required

SHOW_ONCE = "members_show_once"


def _page(request: TenantRequest, status: int = 200, **extra: Any) -> HttpResponse:
    context = {
        "tenant": request.membership.tenant,
        "administered": request.administered,
        "roles": Role.choices,
        "cache_scopes": Tenant.CacheScope.choices,
        "members": Membership.objects.select_related("user").order_by("user__email"),
        "invitations": [each for each in Invitation.objects.select_related("invited_by")[:200] if each.is_open],
        "keys": ApiKey.objects.select_related("created_by")[:200],
        "invite_form": InviteForm(),
        "key_form": KeyForm(),
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
    return _page(request, **made)


def _show_once(request: TenantRequest, **made: Any) -> HttpResponse:
    request.session[SHOW_ONCE] = made | {"tenant_id": str(request.membership.tenant_id)}
    return redirect("members")


@require_POST
@tenant_admin_required
def invite(request: TenantRequest) -> HttpResponse:
    form = InviteForm(request.POST)
    if not form.is_valid():
        return _page(request, status=422, invite_form=form)
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
        return _page(request, status=422, invite_form=form)
    mailed = invitations.send(invitation, link)
    return _show_once(request, new_link=link, new_email=invitation.email, mailed=mailed)


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


@require_POST
@tenant_admin_required
def create_key(request: TenantRequest) -> HttpResponse:
    form = KeyForm(request.POST)
    if not form.is_valid():
        return _page(request, status=422, key_form=form)
    key, text = keys.create_key(
        request.membership.tenant_id,
        form.cleaned_data["label"],
        created_by=request.user,
        expires=form.expires(),
        requests_per_minute=form.cleaned_data["requests_per_minute"],
    )
    return _show_once(request, new_key=text, new_label=key.label)


@require_POST
@tenant_admin_required
def revoke_key(request: TenantRequest, key_id: uuid.UUID) -> HttpResponse:
    keys.revoke_key(get_object_or_404(ApiKey.objects, pk=key_id), who=request.user)
    messages.success(request, _("The key no longer works."))
    return redirect("members")
