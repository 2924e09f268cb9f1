"""Batches and files for operators: whose, how far, what was wrong. No text."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import display

from pagoda.batches.models import Batch, StoredFile
from pagoda.batches.quota_admin import TenantWithFilesAdmin
from pagoda.batches.webhooks_admin import WebhookAdmin, WebhookDeliveryAdmin
from pagoda.tenants.admin_rows import AcrossTenants, ReadOnly
from pagoda.tenants.models import Tenant

__all__ = ["BatchAdmin", "StoredFileAdmin", "WebhookAdmin", "WebhookDeliveryAdmin"]


@admin.register(Batch)
class BatchAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    list_display = ("id", "of_tenant", "endpoint", "state", "progress", "failed", "created", "finished")
    list_filter = ("status", "tenant", "created")
    search_fields = ("id",)
    list_select_related = ("tenant",)
    fields = (
        *("id", "tenant", "api_key", "endpoint", "status", "progress", "total", "completed", "failed", "errors"),
        *("input_file", "output_file", "error_file", "created", "expires", "finished", "lease_owner", "lease_expires"),
    )
    readonly_fields = fields

    @display(
        description=_("status"),
        ordering="status",
        label={"completed": "success", "failed": "danger", "expired": "danger", "in_progress": "info"},
    )
    def state(self, batch: Batch) -> str:
        """As the API calls it."""
        return str(batch.status)

    @admin.display(description=_("progress"))
    def progress(self, batch: Batch) -> str:
        done = batch.completed + batch.failed
        return f"{done} / {batch.total} ({done * 100 // batch.total} %)" if batch.total else "–"


@admin.register(StoredFile)
class StoredFileAdmin(AcrossTenants, ReadOnly, ModelAdmin):
    """Not the name, which may say something of the content."""

    list_display = ("id", "of_tenant", "purpose", "bytes", "created", "expires")
    list_filter = ("purpose", "tenant", "created")
    search_fields = ("id",)
    list_select_related = ("tenant",)
    fields = ("id", "tenant", "api_key", "purpose", "bytes", "created", "expires")
    readonly_fields = fields


admin.site.unregister(Tenant)
admin.site.register(Tenant, TenantWithFilesAdmin)
