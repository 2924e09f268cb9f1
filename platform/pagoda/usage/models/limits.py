"""A tenant's limits, and what counts against a tenant's or a key's at this moment."""

from __future__ import annotations

from datetime import date

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import ApiKey, Limits, Tenant
from pagoda.tenants.models.limits import told_limits
from pagoda.tenants.scoping import TenantOwned


class TenantLimits(Limits, TenantOwned):
    """What a whole tenant may ask for: its people and its keys together."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="limits")

    class Meta:
        verbose_name = _("limits")
        verbose_name_plural = _("limits")
        default_manager_name = "objects"

    def __str__(self) -> str:
        return told_limits(self) or "—"


class Meter(TenantOwned):
    """What one subject, a tenant or a key, has used and holds. Made when the first of its limits is looked at.

    subject: the id of the tenant or of the key. minute: the last minute by the second, as ``usage.window`` writes it.
    running: generations that hold something. month: its first day (UTC); used: tokens in the ledger since then; held:
    tokens of the open holds. Its row is locked by whoever changes it.
    """

    subject = models.UUIDField(primary_key=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    minute = models.JSONField(default=list)
    running = models.PositiveIntegerField(default=0)
    month = models.DateField(default=date.min)
    used = models.PositiveBigIntegerField(default=0)
    held = models.PositiveBigIntegerField(default=0)

    class Meta:
        default_manager_name = "objects"

    def __str__(self) -> str:
        return f"{self.used} + {self.held}"


class OpenHold(TenantOwned):
    """What one generation may use at most, from its admission until it is settled.

    tokens: counted against the month. minute_tokens: counted against the minute of ``created``.
    """

    generation_id = models.UUIDField(primary_key=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    api_key = models.ForeignKey(ApiKey, null=True, on_delete=models.CASCADE, related_name="+")
    tokens = models.PositiveBigIntegerField()
    minute_tokens = models.PositiveBigIntegerField()
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        default_manager_name = "objects"
        indexes = (models.Index(fields=["created"], name="usage_hold_created"),)

    def __str__(self) -> str:
        return f"{self.generation_id}: {self.tokens}"
