"""Quotas as the engines know them: one account per active tenant."""

from __future__ import annotations

import logging

from pagoda.pool.capacity import MIB
from pagoda.pool.models import EnginePool, Quota, QuotaVersion
from pagoda_inference.protocol import Account, ModelInfo, SetAccounts

logger = logging.getLogger(__name__)


def build_accounts(address: str, info: ModelInfo) -> SetAccounts:
    """The full list for the engine at an address, whose size is remembered.

    The version is read before the quotas: a change in between is sent now under the older number, and again under its
    own. Where the pool shrank below the reservations, the engine scales them down in proportion to the size that they
    were made for, rather than refuse them as a whole; the KV pool page raises the alert.
    """
    version = QuotaVersion.current()
    quotas = list(Quota.objects.filter(tenant__is_active=True).order_by("tenant_id"))
    reserved = sum(quota.reservation for quota in quotas)
    if reserved > info.total_blocks:
        logger.error("%d blocks are reserved but the pool has %d: scaled down", reserved, info.total_blocks)
    made_for = EnginePool.objects.filter(address=address).values_list("quota_blocks", flat=True).first()
    return SetAccounts(
        version=version,
        accounts=tuple(_account(quota, info.total_blocks) for quota in quotas),
        # Made before any engine was seen, reservations may exceed every pool.
        pool_blocks=max(made_for or info.total_blocks, reserved),
    )


def _account(quota: Quota, total: int) -> Account:
    return Account(
        id=str(quota.tenant_id),
        reservation=quota.reservation,
        limit=quota.limit if quota.limit is not None and quota.limit < total else None,
        weight=quota.weight,
        host_bytes=_bytes(quota.host_mib),
        disk_bytes=_bytes(quota.disk_mib),
    )


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB
