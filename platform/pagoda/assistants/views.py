"""`/assistant/`: a tenant's admin says what the tenant's conversations begin with."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from pagoda.assistants import changing
from pagoda.assistants.forms import AssistantForm
from pagoda.assistants.models import Assistant, PublishedPrefix
from pagoda.tenants.views.access import TenantRequest, tenant_admin_required


@require_http_methods(["GET", "POST"])
@tenant_admin_required
def assistant(request: TenantRequest) -> HttpResponse:
    tenant = request.membership.tenant
    current = Assistant.objects.select_related("prefix", "changed_by").first() or Assistant(tenant=tenant)
    form = AssistantForm(request.POST if request.method == "POST" else None, instance=current)
    if request.method == "POST" and form.is_valid():
        changing.save(form.save(commit=False), who=request.user)
        messages.success(request, _("Saved. Conversations that begin from now on begin with it."))
        return redirect("assistant")
    context = {
        "tenant": tenant,
        "administered": request.administered,
        "assistant": current,
        "form": form,
        "prefixes": PublishedPrefix.objects.filter(active=True),
    }
    response = render(request, "assistants/assistant.html", context, status=422 if form.errors else 200)
    response["Cache-Control"] = "no-store"
    return response
