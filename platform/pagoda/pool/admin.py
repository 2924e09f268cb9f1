"""Quotas where operators look for them: inside the tenant, and in a list of their own; and the live page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.forms import ModelForm
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin, StackedInline

from pagoda.pool import alerts, capacity, pushing
from pagoda.pool.models import Quota
from pagoda.tenants import audit
from pagoda.tenants.admin_rows import worked_out_once
from pagoda.tenants.models import Tenant, User
from pagoda.usage.limits_admin import TenantWithLimitsAdmin

FIELDS = ("reservation", "limit", "weight")
TIERS = ("host_mib", "disk_mib")
SIZES = ("reservation_size", "limit_size", "pool_size")
LAYOUT = (*zip(FIELDS, SIZES, strict=True), TIERS)
"""Each number of blocks beside what it means, and the two of the tiers."""


class QuotaSizes:
    """Read-only columns: what the blocks are in tokens and MiB."""

    @admin.display(description=gettext_lazy("reserved"))
    @worked_out_once
    def reservation_size(self, quota: Quota) -> str:
        return _size(quota.reservation)

    @admin.display(description=gettext_lazy("at most"))
    @worked_out_once
    def limit_size(self, quota: Quota) -> str:
        return _("the whole pool") if quota.limit is None else _size(quota.limit)

    @admin.display(description=gettext_lazy("the pool"))
    @worked_out_once
    def pool_size(self, quota: Quota) -> str:
        pool = capacity.smallest()
        if pool is None:
            return _("not known before an engine was reached")
        left = pool.total_blocks - capacity.reserved(besides=quota) - capacity.published()
        return _("%(size)s; others leave %(left)s blocks to reserve") % {
            "size": pool.describe(pool.total_blocks),
            "left": f"{max(0, left):,}",
        }


def _size(blocks: int | None) -> str:
    pool = capacity.smallest()
    return "—" if pool is None or blocks is None else pool.describe(blocks)


def tell_about_push(request: HttpRequest) -> None:
    """Say whether the engines have the new quotas. Called after the commit."""
    results = pushing.last_push()
    for pushed in results:
        if pushed.unreachable:
            text = _("Saved. The engine at %(address)s cannot be reached: it gets the quotas when it is back.")
            messages.warning(request, text % {"address": pushed.address})
        elif pushed.problem:
            text = _("Saved, but the engine at %(address)s refused the quotas: %(problem)s")
            messages.error(request, text % {"address": pushed.address, "problem": pushed.problem})
    if results and not any(pushed.problem for pushed in results):
        messages.success(request, _("The quotas are in force on every engine."))


class QuotaInline(QuotaSizes, StackedInline):
    model = Quota
    can_delete = False
    min_num = max_num = 1
    fields = LAYOUT
    readonly_fields = SIZES
    verbose_name_plural = gettext_lazy("KV quota, in blocks")


class TenantWithQuotaAdmin(TenantWithLimitsAdmin):
    """The tenant's page with its quota; saving says whether the engines took it."""

    inlines = (QuotaInline, *TenantWithLimitsAdmin.inlines)
    list_display = (*TenantWithLimitsAdmin.list_display, "reservation", "limit", "weight")
    list_select_related = ("quota",)

    @admin.display(description=gettext_lazy("reservation"), ordering="quota__reservation")
    def reservation(self, tenant: Tenant) -> int:
        return _quota(tenant).reservation

    @admin.display(description=gettext_lazy("limit"), ordering="quota__limit")
    def limit(self, tenant: Tenant) -> str:
        limit = _quota(tenant).limit
        return _("the whole pool") if limit is None else str(limit)

    @admin.display(description=gettext_lazy("weight"), ordering="quota__weight")
    def weight(self, tenant: Tenant) -> float:
        return _quota(tenant).weight

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().changeform_view(request, *args, **kwargs)
        _tell_after_change(request, response)
        return response

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().delete_view(request, *args, **kwargs)
        _tell_after_change(request, response)
        return response

    def save_formset(self, request: HttpRequest, form: ModelForm, formset: BaseInlineFormSet, change: bool) -> None:
        if formset.model is Quota:
            _audit_quotas(request, formset)
        super().save_formset(request, form, formset, change)


def _quota(tenant: Tenant) -> Quota:
    """A tenant that was loaded from a fixture may have none yet; it is served like one with the defaults."""
    return getattr(tenant, "quota", None) or Quota(tenant=tenant)


def _tell_after_change(request: HttpRequest, response: HttpResponse) -> None:
    if request.method == "POST" and response.status_code == 302:
        tell_about_push(request)


def _audit_quotas(request: HttpRequest, formset: BaseInlineFormSet) -> None:
    for form in formset.forms:
        if form.has_changed():
            _audit_quota(request.user, form.instance)


def _audit_quota(who: Any, quota: Quota) -> None:
    numbers = {name: getattr(quota, name) for name in (*FIELDS, *TIERS)}
    assert isinstance(who, User)
    audit.record("quota.changed", who=who, tenant_id=quota.tenant_id, **numbers)


class QuotaAdmin(QuotaSizes, ModelAdmin):
    """All quotas side by side. They are made and deleted with their tenants."""

    list_display = ("tenant", *FIELDS, *TIERS, "reservation_size", "limit_size")
    list_select_related = ("tenant",)
    search_fields = ("tenant__name", "tenant__slug")
    fields = ("tenant", *LAYOUT)
    readonly_fields = ("tenant", *SIZES)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Quota, form: ModelForm, change: bool) -> None:
        _audit_quota(request.user, obj)
        super().save_model(request, obj, form, change)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().changeform_view(request, *args, **kwargs)
        _tell_after_change(request, response)
        return response

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "GET":
            for alert in alerts.current():
                messages.warning(request, alert)
        return super().changelist_view(request, *args, **kwargs)


admin.site.index_title = gettext_lazy("Dashboard")
admin.site.register(Quota, QuotaAdmin)
admin.site.unregister(Tenant)
admin.site.register(Tenant, TenantWithQuotaAdmin)
