"""A tenant's limits, budget and prices where operators look for them: inside the tenant."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.humanize.templatetags.humanize import intcomma
from django.forms import ModelForm
from django.forms.formsets import DELETION_FIELD_NAME
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import StackedInline, TabularInline

from pagoda.tenants import audit
from pagoda.tenants.admin import TenantAdmin
from pagoda.tenants.admin_rows import AcrossTenants, AcrossTenantsFormSet, acting, worked_out_once
from pagoda.tenants.models import LIMITS, Tenant
from pagoda.tenants.scoping import tenant_scope
from pagoda.usage import budgets
from pagoda.usage.forms import DaysForm
from pagoda.usage.models import Price, TenantLimits
from pagoda.usage.pricing import PriceLists
from pagoda.usage.totals import totals


class LimitsInline(AcrossTenants, StackedInline):
    model = TenantLimits
    formset = AcrossTenantsFormSet
    extra = max_num = 1
    can_delete = False
    tab = True
    fields = (LIMITS[:2], LIMITS[2:])
    verbose_name_plural = gettext_lazy("Limits")


class PriceFormSet(AcrossTenantsFormSet):
    """Rows that a past month was paid by are shown and stay as they are."""

    def add_fields(self, form: ModelForm, index: int | None) -> None:
        super().add_fields(form, index)
        if not form.instance._state.adding and form.instance.is_closed:
            for name in (*Price.FIELDS, DELETION_FIELD_NAME):
                if name in form.fields:
                    form.fields[name].disabled = True


class PriceInline(AcrossTenants, TabularInline):
    model = Price
    formset = PriceFormSet
    extra = 0
    tab = True
    fields = Price.FIELDS


class TenantWithLimitsAdmin(TenantAdmin):
    """The tenant's page with its limits, its prices, and what it has used this month."""

    inlines = (LimitsInline, PriceInline, *TenantAdmin.inlines)
    fields = (*TenantAdmin.fields, "used_this_month")
    readonly_fields = (*TenantAdmin.readonly_fields, "used_this_month")

    @admin.display(description=gettext_lazy("used this month"))
    @worked_out_once
    def used_this_month(self, tenant: Tenant) -> str:
        """Tokens, the budget, and what they cost."""
        if tenant._state.adding:
            return "—"
        budget = budgets.of_tenant(tenant)
        numbers = {"used": intcomma(budget.used), "held": intcomma(budget.held)}
        if budget.limit is None:
            text = _("%(used)s tokens; no budget") % numbers
        else:
            numbers |= {"limit": intcomma(budget.limit), "percent": str(budget.percent)}
            text = _("%(used)s tokens, %(held)s held, of %(limit)s (%(percent)s %%)") % numbers
        with tenant_scope(tenant.pk):
            prices = PriceLists(Price.objects.all())
            spent = totals(*DaysForm.this_month(), prices).together
        return f"{text} · {spent.cost}" if spent.costs else text

    def save_formset(self, request: HttpRequest, form: ModelForm, formset: BaseInlineFormSet, change: bool) -> None:
        super().save_formset(request, form, formset, change)
        if formset.model in (TenantLimits, Price):
            _audit(request, formset)


def _audit(request: HttpRequest, formset: BaseInlineFormSet) -> None:
    what = "limits" if formset.model is TenantLimits else "price"
    changed = [*formset.new_objects, *(row for row, _fields in formset.changed_objects)]
    for act, rows in (("changed", changed), ("removed", formset.deleted_objects)):
        for row in rows:
            audit.record(f"{what}.{act}", who=acting(request), tenant_id=row.tenant_id, **_numbers(row))


def _numbers(row: Any) -> dict[str, Any]:
    if isinstance(row, TenantLimits):
        return row.limits()
    return {name: str(getattr(row, name)) for name in Price.FIELDS}
