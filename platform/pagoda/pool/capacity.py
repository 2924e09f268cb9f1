"""How large the pool is, and whether the quotas fit into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone
from django.utils.translation import gettext as _

from pagoda.engines import reports
from pagoda_inference.protocol import AccountsSet, ModelInfo

if TYPE_CHECKING:
    from pagoda.pool.models import Quota

MIB = 2**20
PUBLIC = "public"
"""The engine's own account, which published prefixes are charged to."""


@dataclass(frozen=True)
class Capacity:
    """A pool: ``total_blocks`` blocks of ``block_size`` tokens, ``bytes_per_block`` bytes each."""

    total_blocks: int
    block_size: int
    bytes_per_block: int

    def tokens(self, blocks: int) -> int:
        return blocks * self.block_size

    def mib(self, blocks: int) -> float:
        return blocks * self.bytes_per_block / MIB

    def describe(self, blocks: int) -> str:
        """``96 blocks = 1,536 tokens = 33.8 MiB``"""
        return _("%(blocks)s blocks = %(tokens)s tokens = %(mib)s MiB") % {
            "blocks": f"{blocks:,}",
            "tokens": f"{self.tokens(blocks):,}",
            "mib": f"{mib:,.1f}" if (mib := self.mib(blocks)) >= 1 else f"{mib:.2g}",
        }


def remember(address: str, info: ModelInfo) -> None:
    """Store the size that an engine reports.

    The size that the quotas were made for is kept where they do not fit into this one (any more): what the engine has
    to scale them by.
    """
    from pagoda.pool.models import EnginePool

    sizes = {
        "model": info.id,
        "block_size": info.block_size,
        "total_blocks": info.total_blocks,
        "bytes_per_block": info.bytes_per_block,
        "seen": timezone.now(),
    }
    made = reserved()
    fits = made <= info.total_blocks
    if fits:
        sizes["quota_blocks"] = info.total_blocks
    EnginePool.objects.update_or_create(
        address=address, defaults=sizes, create_defaults=sizes | {"quota_blocks": max(made, info.total_blocks)}
    )


def note_scaling(address: str, answer: AccountsSet) -> None:
    """Remember by how much an engine scales the reservations. An answer that refuses tells nothing of it."""
    from pagoda.pool.models import EnginePool

    if answer.error is None:
        EnginePool.objects.filter(address=address).exclude(scaled=answer.scaled).update(scaled=answer.scaled)


def smallest() -> Capacity | None:
    """The smallest pool among PAGODA_ENGINES, the one that all reservations must fit into; None before any was seen."""
    from pagoda.pool.models import EnginePool

    pool = EnginePool.objects.filter(address__in=settings.PAGODA_ENGINES).order_by("total_blocks").first()
    return Capacity(pool.total_blocks, pool.block_size, pool.bytes_per_block) if pool else None


def reserved(besides: Quota | None = None) -> int:
    """Blocks reserved by active tenants, without ``besides``."""
    from pagoda.pool.models import Quota

    quotas = Quota.objects.filter(tenant__is_active=True)
    if besides is not None:
        quotas = quotas.exclude(pk=besides.pk)
    return quotas.aggregate(total=Sum("reservation"))["total"] or 0


def published() -> int:
    """Blocks that published prefixes hold on the engine where they hold most, as far as this process has heard."""
    latest = (reports.latest(address) for address in settings.PAGODA_ENGINES)
    held = (
        account.active + account.cached
        for report in latest
        if report is not None
        for account in report.accounts
        if account.id == PUBLIC
    )
    return max(held, default=0)


def check_limit(quota: Quota) -> None:
    """Raises ValidationError where the limit is more than the smallest pool has."""
    capacity = smallest()
    if capacity is not None and quota.limit is not None and quota.limit > capacity.total_blocks:
        message = _("The pool has %(total)s blocks: leave this empty for the whole pool.")
        raise ValidationError({"limit": message % {"total": f"{capacity.total_blocks:,}"}})


def check_reservation(quota: Quota) -> None:
    """Raises ValidationError where all reservations together would exceed the smallest pool."""
    capacity = smallest()
    if capacity is None or not quota.tenant.is_active:
        return
    _wait_for_other_changes()
    left = capacity.total_blocks - reserved(besides=quota) - published()
    if quota.reservation > left:
        message = _("The pool has %(total)s blocks and others reserve %(others)s: at most %(left)s are left.") % {
            "total": f"{capacity.total_blocks:,}",
            "others": f"{capacity.total_blocks - left:,}",
            "left": f"{max(0, left):,}",
        }
        raise ValidationError({"reservation": message})


def _wait_for_other_changes() -> None:
    """Inside a transaction, let nobody else change quotas between the sum and the commit."""
    from pagoda.pool.models import QuotaVersion

    if transaction.get_connection().in_atomic_block:
        QuotaVersion.objects.select_for_update().first()
