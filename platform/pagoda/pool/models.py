"""Each tenant's share of the KV pool, in blocks, and what is known of the engines' pools."""

from __future__ import annotations

import time
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.models import Tenant


class Quota(models.Model):
    """A tenant's account: what it is guaranteed, what it may never exceed, and its share of the rest."""

    tenant = models.OneToOneField(
        Tenant, primary_key=True, on_delete=models.CASCADE, related_name="quota", verbose_name=_("tenant")
    )
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
        validators=[MinValueValidator(0.001), MaxValueValidator(1000)],
        help_text=_("Share of what is left while tenants compete: 2 gets twice as much as 1."),
    )

    class Meta:
        verbose_name = _("KV quota")
        verbose_name_plural = _("KV quotas")
        ordering = ("tenant__name",)
        constraints = (
            models.CheckConstraint(
                condition=models.Q(limit__isnull=True) | models.Q(reservation__lte=F("limit")),
                name="quota_reservation_within_limit",
                violation_error_message=_("The reservation cannot exceed the limit."),
            ),
            models.CheckConstraint(
                condition=models.Q(weight__gt=0),
                name="quota_weight_positive",
                violation_error_message=_("The weight must be above 0."),
            ),
        )

    def __str__(self) -> str:
        return str(self.tenant)

    def clean(self) -> None:
        """Refuse what the pool cannot honour, with the numbers."""
        from pagoda.pool.capacity import check_limit, check_reservation

        super().clean()
        if self.limit:
            check_limit(self)
            if self.reservation is not None and self.reservation > self.limit:
                raise ValidationError({"limit": _("The reservation cannot exceed the limit.")})
        if self.reservation is not None and self.tenant_id is not None:
            check_reservation(self)


class QuotaVersion(models.Model):
    """The one row whose number rises with every change of any quota: an engine ignores an older list.

    It starts at the time of day in seconds, so that a new database is ahead of what engines learnt from an older one.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.PositiveBigIntegerField()

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="quota_version_single"),)

    def __str__(self) -> str:
        return str(self.version)

    @classmethod
    def current(cls) -> int:
        version = cls.objects.values_list("version", flat=True).first()
        return version if version is not None else cls.raise_above(0)

    @classmethod
    def raise_above(cls, seen: int) -> int:
        """Make the version greater than it is and than ``seen``. Part of the caller's transaction."""
        QuotaVersion.objects.bulk_create([QuotaVersion(id=1, version=int(time.time()))], ignore_conflicts=True)
        cls.objects.filter(version__lt=seen).update(version=seen)
        cls.objects.update(version=F("version") + 1)
        return cls.objects.values_list("version", flat=True).get()


class EnginePool(models.Model):
    """The size of an engine's pool as it said at its last connection: quotas are checked against it at any time."""

    address = models.CharField(max_length=255, primary_key=True)
    model = models.CharField(max_length=200)
    block_size = models.PositiveIntegerField()
    total_blocks = models.PositiveIntegerField()
    bytes_per_block = models.PositiveBigIntegerField()
    seen = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.address

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.seen = timezone.now()
        super().save(*args, **kwargs)
