"""`/members/keys`: a tenant's admin makes API keys, changes, rotates and revokes them.

Everything is looked up through the tenant in scope: an id of another tenant is answered like an unknown one.
"""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from pagoda.tenants import keys
from pagoda.tenants.forms import KeyForm, NewKeyForm, RotateForm
from pagoda.tenants.models import ApiKey
from pagoda.tenants.views.access import TenantRequest, tenant_admin_required
from pagoda.tenants.views.members import page, show_once


@require_POST
@tenant_admin_required
def create_key(request: TenantRequest) -> HttpResponse:
    form = NewKeyForm(request.POST)
    if not form.is_valid():
        return page(request, status=422, key_form=form)
    key, text = keys.create_key(
        request.membership.tenant_id,
        form.cleaned_data["label"],
        created_by=request.user,
        scopes=form.cleaned_data["scopes"],
        expires=form.expires(),
        **form.limits(),
    )
    return show_once(request, new_key=text, new_label=key.label)


@require_http_methods(["GET", "POST"])
@tenant_admin_required
def key(request: TenantRequest, key_id: uuid.UUID) -> HttpResponse:
    """One key: what it may be used for and is limited to."""
    stored: ApiKey = get_object_or_404(ApiKey.objects.select_related("created_by", "replaced_by"), pk=key_id)
    form = KeyForm(request.POST if request.method == "POST" else None, instance=stored)
    if request.method == "POST" and form.is_valid():
        label, scopes = form.cleaned_data["label"], form.cleaned_data["scopes"]
        if keys.change_key(stored, who=request.user, label=label, scopes=scopes, **form.limits()):
            messages.success(request, _("The key was changed. It holds for every request from now on."))
        return redirect("members")
    context = {
        "tenant": request.membership.tenant,
        "administered": request.administered,
        "key": ApiKey.objects.select_related("created_by", "replaced_by").get(pk=stored.pk),
        "form": form,
        "rotate_form": RotateForm(),
    }
    response = render(request, "tenants/key.html", context, status=422 if form.errors else 200)
    response["Cache-Control"] = "no-store"
    return response


@require_POST
@tenant_admin_required
def rotate_key(request: TenantRequest, key_id: uuid.UUID) -> HttpResponse:
    stored: ApiKey = get_object_or_404(ApiKey.objects, pk=key_id)
    form = RotateForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("There is no such choice."))
        return redirect("members_key_change", key_id=key_id)
    try:
        made, text = keys.rotate_key(stored, who=request.user, overlap=form.duration())
    except keys.KeyRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("members")
    return show_once(request, new_key=text, new_label=made.label)


@require_POST
@tenant_admin_required
def revoke_key(request: TenantRequest, key_id: uuid.UUID) -> HttpResponse:
    keys.revoke_key(get_object_or_404(ApiKey.objects, pk=key_id), who=request.user)
    messages.success(request, _("The key no longer works."))
    return redirect("members")
