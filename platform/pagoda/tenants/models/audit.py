"""Who changed what, for which tenant, when."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models.people import Tenant
from pagoda.tenants.scoping import TenantOwned


class AuditEntry(TenantOwned):
    """One act. ``tenant`` is null for acts on the installation. Never holds the text of a message or a secret."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(  # type: ignore[assignment]
        Tenant, null=True, blank=True, on_delete=models.SET_NULL, related_name="audit_entries"
    )
    who = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", verbose_name=_("who")
    )
    what = models.CharField(_("what"), max_length=60)
    details = models.JSONField(_("details"), default=dict)
    when = models.DateTimeField(_("when"), default=timezone.now)

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit")
        ordering = ("-when",)
        default_manager_name = "objects"
        indexes = (models.Index(fields=["tenant", "-when"], name="audit_tenant_when"),)

    def __str__(self) -> str:
        who = self.who or _("system")
        return f"{self.what} · {who}"
