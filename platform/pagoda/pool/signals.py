"""Every tenant has a quota, and every change of either reaches the engines after the commit."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from pagoda.pool.models import Quota, QuotaVersion
from pagoda.pool.pushing import push
from pagoda.tenants.models import Tenant


@receiver(post_save, sender=Tenant, dispatch_uid="pool_tenant_saved")
def tenant_saved(instance: Tenant, created: bool, raw: bool, **_: Any) -> None:
    """Make the quota with the tenant; a tenant that is suspended or resumed leaves or enters the accounts."""
    if raw:
        return
    if created:
        Quota.objects.get_or_create(tenant=instance)
    else:
        _changed()


@receiver([post_save, post_delete], sender=Quota, dispatch_uid="pool_quota_changed")
def quota_changed(**arguments: Any) -> None:
    if not arguments.get("raw"):
        _changed()


def _changed() -> None:
    QuotaVersion.raise_above(0)
    transaction.on_commit(push)
