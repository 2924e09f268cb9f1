"""`/usage/`: what a tenant has used, for its admins: totals, costs, the budget, and every record as a file."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_GET

from pagoda.tenants.keys import authenticate_key
from pagoda.tenants.models import Scope
from pagoda.tenants.views.access import TenantRequest, tenant_admin_required
from pagoda.usage import budgets, export
from pagoda.usage.chart import MOST_DAYS, chart
from pagoda.usage.forms import DaysForm
from pagoda.usage.models import Price, TenantLimits
from pagoda.usage.pricing import PriceLists
from pagoda.usage.totals import most, totals


@require_GET
@tenant_admin_required
def usage(request: TenantRequest) -> HttpResponse:
    tenant, form = request.membership.tenant, DaysForm.of(request.GET)
    context = {
        "tenant": tenant,
        "administered": request.administered,
        "form": form,
        "budget": budgets.of_tenant(tenant),
        "limits": TenantLimits.objects.first(),
        "price": Price.objects.first(),
    }
    if form.is_valid():
        found = totals(*form.days(), PriceLists(Price.objects.all()))
        context |= {
            "totals": found,
            "chart": chart(found.days, *form.days()),
            "members": most(found.members),
            "keys": most(found.keys),
            "days": found.days[-MOST_DAYS:],
        }
    response = render(request, "usage/usage.html", context, status=422 if form.errors else 200)
    response["Cache-Control"] = "no-store"
    return response


@require_GET
def export_csv(request: HttpRequest) -> HttpResponseBase:
    """For a tenant's admins in the browser, and for its keys with the scope ``admin``: ``Authorization: Bearer …``."""
    kind, _, text = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer":
        if not request.user.is_authenticated and "text/html" not in request.headers.get("Accept", ""):
            return _refused("Send an API key with the scope admin: Authorization: Bearer pgd_…", 401)
        return _export_for_admin(request)
    key = authenticate_key(text.strip())
    if key is None:
        return _refused("The API key is unknown, expired or revoked, or its tenant is suspended.", 401)
    if not key.allows(Scope.ADMIN):
        return _refused(f"The API key pgd_{key.prefix}… has no scope {Scope.ADMIN.value}.", 403)
    return _export(request, key.tenant_id)


@tenant_admin_required
def _export_for_admin(request: TenantRequest) -> HttpResponseBase:
    return _export(request, request.membership.tenant_id)


def _export(request: HttpRequest, tenant_id: uuid.UUID) -> HttpResponseBase:
    form = DaysForm.of(request.GET)
    if not form.is_valid():
        return _refused(form.errors.as_text(), 422)
    return export.response(*form.days(), tenant_id=tenant_id)


def _refused(text: str, status: int) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
