"""How much of its month a tenant has used, as people read it."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from pagoda.tenants.models import Tenant
from pagoda.tenants.scoping import tenant_scope
from pagoda.usage import meters, sums
from pagoda.usage.models import Meter, TenantLimits


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens of the present month (UTC). used: in the ledger; held: by generations in progress; limit: None: none."""

    used: int
    held: int
    limit: int | None

    @property
    def percent(self) -> int | None:
        """Used and held, of the limit; may exceed 100 where the limit was lowered."""
        return None if self.limit is None else 100 * (self.used + self.held) // self.limit


def of_tenant(tenant: Tenant) -> Budget:
    """What the ledger says, whether or not the tenant has a budget."""
    with tenant_scope(tenant.pk):
        limits = TenantLimits.objects.first()
        meter = Meter.objects.filter(subject=tenant.pk).first()
        used = sums.tokens_since(meters.start_of_month(timezone.now()))
    return Budget(used, meter.held if meter else 0, limits.monthly_tokens if limits else None)
