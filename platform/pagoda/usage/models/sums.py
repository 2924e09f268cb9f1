"""What the ledger's records add up to, kept so that nobody has to read them again."""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings
from django.db import models

from pagoda.tenants.models import ApiKey, Tenant
from pagoda.tenants.scoping import TenantOwned

NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class UsageSum(TenantOwned):
    """The records of one tenant, member, key and model within a day that is over, or an hour of the one that is not.

    begin: of that day or hour (UTC). day: the day it lies in. What ``SummedUntil`` is past, and nothing else, is here.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    begin = models.DateTimeField()
    day = models.DateField()
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    api_key = models.ForeignKey(ApiKey, null=True, on_delete=models.SET_NULL, related_name="+")
    model = models.CharField(max_length=200)
    generations = models.PositiveBigIntegerField()
    prompt_tokens = models.PositiveBigIntegerField()
    cached_tokens = models.PositiveBigIntegerField()
    output_tokens = models.PositiveBigIntegerField()

    class Meta:
        default_manager_name = "objects"
        indexes = (
            models.Index(fields=["tenant", "begin"], name="usage_sum_tenant_begin"),
            models.Index(fields=["day"], name="usage_sum_day"),
        )

    def __str__(self) -> str:
        return f"{self.begin:%Y-%m-%d %H}h: {self.prompt_tokens} + {self.output_tokens}"


class SummedUntil(models.Model):
    """One row, locked by whoever sums: the records dated before ``until``, a full hour (UTC), are in the sums."""

    until = models.DateTimeField(default=NEVER)

    def __str__(self) -> str:
        return f"{self.until:%Y-%m-%d %H}h"
