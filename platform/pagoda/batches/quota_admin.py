"""A tenant's files where operators look for their limits: inside the tenant, and summed up in the list of tenants."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery, Sum
from django.forms import ModelForm
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import StackedInline

from pagoda.batches import quota
from pagoda.batches.models import FileQuota, StoredFile
from pagoda.pool.admin import TenantWithQuotaAdmin
from pagoda.tenants import audit
from pagoda.tenants.admin_rows import AcrossTenants, AcrossTenantsFormSet, acting, worked_out_once
from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import tenant_scope


class FileQuotaInline(AcrossTenants, StackedInline):
    model = FileQuota
    formset = AcrossTenantsFormSet
    extra = max_num = 1
    can_delete = False
    tab = True
    fields = ("mib",)
    verbose_name_plural = gettext_lazy("Files")


class TenantWithFilesAdmin(TenantWithQuotaAdmin):
    """The tenant's page with its file quota, and what its files take up."""

    inlines = (*TenantWithQuotaAdmin.inlines, FileQuotaInline)
    list_display = (*TenantWithQuotaAdmin.list_display, "files")
    fields = (*TenantWithQuotaAdmin.fields, "stored_files")
    readonly_fields = (*TenantWithQuotaAdmin.readonly_fields, "stored_files")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        rows = StoredFile.across_tenants.filter(tenant=OuterRef("pk")).order_by().values("tenant")
        return (
            super().get_queryset(request).annotate(file_bytes=Subquery(rows.annotate(sum=Sum("bytes")).values("sum")))
        )

    @admin.display(description=gettext_lazy("files"), ordering="file_bytes")
    def files(self, tenant: Any) -> str:
        """What they take up."""
        return filesizeformat(tenant.file_bytes or 0)

    @admin.display(description=gettext_lazy("files"))
    @worked_out_once
    def stored_files(self, tenant: Tenant) -> str:
        """How many there are, what they take up, and what they may."""
        if tenant._state.adding:
            return "—"
        with tenant_scope(tenant.pk):
            space = quota.space()
        numbers = {"count": f"{space.files:,}", "used": filesizeformat(space.used)}
        if space.most is None:
            return _("%(used)s in %(count)s files; no limit") % numbers
        numbers |= {"most": filesizeformat(space.most), "percent": str(space.used * 100 // space.most)}
        return _("%(used)s in %(count)s files, of %(most)s (%(percent)s %%)") % numbers

    def save_formset(self, request: HttpRequest, form: ModelForm, formset: BaseInlineFormSet, change: bool) -> None:
        super().save_formset(request, form, formset, change)
        if formset.model is FileQuota:
            for row in (*formset.new_objects, *(row for row, _fields in formset.changed_objects)):
                audit.record("file_quota.changed", who=acting(request), tenant_id=row.tenant_id, mib=row.mib)
