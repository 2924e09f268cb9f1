"""Each tenant's share of the KV pool, in blocks, and the version of all shares together."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.models import Tenant


class Quota(models.Model):
    """A tenant's account: what it is guaranteed, what it may never exceed, and its share of the rest."""

    tenant = models.OneToOneField(Tenant, primary_key=True, on_delete=models.CASCADE, related_name="quota")
    reservation = models.PositiveIntegerField(
        _("reservation"), default=0, help_text=_("Blocks that this tenant can always have.")
    )
    limit = models.PositiveIntegerField(
        _("limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Blocks that this tenant never exceeds. Empty: the whole pool."),
    )
    weight = models.FloatField(
        _("weight"),
        default=1.0,
        validators=[MinValueValidator(0.01)],
        help_text=_("Share of what is left while tenants compete: 2 gets twice as much as 1."),
    )

    class Meta:
        verbose_name = _("KV quota")
        verbose_name_plural = _("KV quotas")
        ordering = ("tenant__name",)

    def __str__(self) -> str:
        return str(self.tenant)


class QuotaVersion(models.Model):
    """The one row whose number rises with every change of any quota: an engine ignores an older list."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="quota_version_single"),)

    def __str__(self) -> str:
        return str(self.version)
