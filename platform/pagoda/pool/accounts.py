"""Quotas as the engines know them: one account per active tenant."""

from __future__ import annotations

import logging

from pagoda.pool.models import Quota, QuotaVersion
from pagoda_inference.protocol import Account, ModelInfo, SetAccounts

logger = logging.getLogger(__name__)


def build_accounts(info: ModelInfo) -> SetAccounts:
    """The full list for an engine.

    The version is read before the quotas: a change in between is sent now under the older number, and again under its
    own. Where the pool shrank below the reservations, these are scaled down in proportion rather than refused as a
    whole; the KV pool page raises the alert.
    """
    version = QuotaVersion.current()
    quotas = list(Quota.objects.filter(tenant__is_active=True).order_by("tenant_id"))
    reserved = sum(quota.reservation for quota in quotas)
    if reserved > info.total_blocks:
        logger.error("%d blocks are reserved but the pool has %d: scaled down", reserved, info.total_blocks)
    return SetAccounts(
        version=version, accounts=tuple(_account(quota, reserved, info.total_blocks) for quota in quotas)
    )


def _account(quota: Quota, reserved: int, total: int) -> Account:
    reservation = quota.reservation if reserved <= total else quota.reservation * total // reserved
    limit = quota.limit if quota.limit is not None and quota.limit < total else None
    return Account(id=str(quota.tenant_id), reservation=reservation, limit=limit, weight=quota.weight)
