"""The ledger: one row per generation, and its hourly sums."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import ApiKey, Tenant
from pagoda.tenants.scoping import TenantOwned


class UsageRecord(TenantOwned):
    """The tokens of one generation. ``generation_id`` is unique: settling twice bills once.

    Not a foreign key: the ledger outlives conversations that are deleted.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="usage_records")
    generation_id = models.UUIDField(_("generation"), unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    api_key = models.ForeignKey(ApiKey, null=True, on_delete=models.SET_NULL, related_name="+")
    model = models.CharField(_("model"), max_length=200)
    purpose = models.CharField(_("purpose"), max_length=20)
    prompt_tokens = models.PositiveBigIntegerField(_("prompt tokens"))
    cached_tokens = models.PositiveBigIntegerField(_("of them cached"))
    output_tokens = models.PositiveBigIntegerField(_("output tokens"))
    created = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("usage record")
        verbose_name_plural = _("usage records")
        ordering = ("-created",)
        default_manager_name = "objects"
        indexes = (
            models.Index(fields=["created"], name="usage_created"),
            models.Index(fields=["tenant", "created"], name="usage_tenant_created"),
        )

    def __str__(self) -> str:
        return f"{self.prompt_tokens} + {self.output_tokens}"


class UsageHour(TenantOwned):
    """The sums of one tenant, model and hour (UTC). Computed from the records, never added to."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="usage_hours")
    hour = models.DateTimeField(_("hour"))
    model = models.CharField(_("model"), max_length=200)
    generations = models.PositiveBigIntegerField(_("generations"))
    prompt_tokens = models.PositiveBigIntegerField(_("prompt tokens"))
    cached_tokens = models.PositiveBigIntegerField(_("of them cached"))
    output_tokens = models.PositiveBigIntegerField(_("output tokens"))

    class Meta:
        verbose_name = _("hour of usage")
        verbose_name_plural = _("usage")
        ordering = ("-hour",)
        default_manager_name = "objects"
        constraints = (models.UniqueConstraint(fields=["tenant", "hour", "model"], name="usage_hour_once"),)

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h"
