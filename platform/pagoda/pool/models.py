"""Each tenant's share of the KV pool, in blocks, and what is known of the engines' pools."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.models import Tenant
from pagoda.version_row import VersionRow

LARGEST_MIB = 2**30
"""A pebibyte: what a database's integer can hold, and more than anybody has."""


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
    host_mib = models.PositiveIntegerField(
        _("host cache"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(LARGEST_MIB)],
        help_text=_("MiB of host memory for what leaves the pool. Empty: no bound of its own. 0: nothing."),
    )
    disk_mib = models.PositiveIntegerField(
        _("disk cache"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(LARGEST_MIB)],
        help_text=_("MiB of disk for what leaves host memory. Empty: no bound of its own. 0: nothing."),
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


class QuotaVersion(VersionRow):
    """The number of the full list of quotas."""

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="quota_version_single"),)

    @classmethod
    def current(cls) -> int:
        """There is one from the first question on: an engine must be told even an empty list."""
        return super().current() or cls.raise_above(0)


class EnginePool(models.Model):
    """The size of an engine's pool as it said at its last connection: quotas are checked against it at any time.

    quota_blocks: the last size that all reservations fitted into, hence the one they were made for. It stays when the
    pool shrinks below the reservations, and the engine then scales these by ``scaled``.
    """

    address = models.CharField(max_length=255, primary_key=True)
    model = models.CharField(max_length=200)
    block_size = models.PositiveIntegerField()
    total_blocks = models.PositiveIntegerField()
    bytes_per_block = models.PositiveBigIntegerField()
    quota_blocks = models.PositiveIntegerField(default=0)
    scaled = models.FloatField(default=1.0)
    seen = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.address

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.seen = timezone.now()
        super().save(*args, **kwargs)
