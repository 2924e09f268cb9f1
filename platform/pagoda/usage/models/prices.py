"""What a tenant pays for tokens, from a day on."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from pagoda.tenants.identifiers import new_id
from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import TenantOwned


def first_open_day(today: date | None = None) -> date:
    """The first day (UTC) whose prices may still change: that of the present month."""
    return (today or datetime.now(UTC).date()).replace(day=1)


def _price(name: Any) -> models.DecimalField:
    return models.DecimalField(name, max_digits=14, decimal_places=6, validators=[MinValueValidator(0)])


class Price(TenantOwned):
    """Prices per million tokens, from midnight (UTC) of a day until those of the next row.

    input: prompt tokens that were computed; cached_input: those found in the cache. The months before the present one
    do not change: a row that began before it stays as it is, and none is added there.
    """

    FIELDS = ("effective_from", "input", "cached_input", "output", "currency")

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="prices")
    effective_from = models.DateField(_("from"), help_text=_("UTC. Not before the present month."))
    input = _price(_("input"))
    cached_input = _price(_("cached input"))
    output = _price(_("output"))
    currency = models.CharField(_("currency"), max_length=12, help_text=_("For instance USD or KRW."))

    class Meta:
        verbose_name = _("price per million tokens")
        verbose_name_plural = _("prices per million tokens")
        ordering = ("-effective_from",)
        default_manager_name = "objects"
        constraints = (models.UniqueConstraint(fields=["tenant", "effective_from"], name="price_once_a_day"),)

    def __str__(self) -> str:
        return f"{self.effective_from} · {' / '.join(self.numbers.values())} {self.currency}"

    @property
    def numbers(self) -> dict[str, str]:
        """The three prices as people write them, by their fields."""
        return {name: f"{getattr(self, name).normalize():f}" for name in ("input", "cached_input", "output")}

    @property
    def is_closed(self) -> bool:
        """Whether a month that is over was paid by this row."""
        return self.effective_from < first_open_day()

    def clean(self) -> None:
        super().clean()
        if self.effective_from is None or not self.is_closed:
            return
        stored = Price.across_tenants.filter(pk=self.pk).first()
        if stored is None or not stored.is_closed:
            raise ValidationError({"effective_from": _("Prices of past months do not change.")})
