"""The tiers below a loaded model's pool, and what decides between copying and computing again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from pagoda_inference import logs
from pagoda_inference.kv.tiers.host import default_host_bytes, main_memory
from pagoda_inference.kv.tiers.tiers import Tiers
from pagoda_inference.model.backend import Backend
from pagoda_inference.rates import Rates
from pagoda_inference.scheduling.swapping import Mode, PreemptionCost
from pagoda_inference.settings import Settings, SettingsError

logger = logging.getLogger(__name__)

GIB = 1 << 30


def make_tiers(settings: Settings, backend: Backend, *, notify: Callable[[], None]) -> Tiers:
    """Host and disk tier as the settings say; by default a host tier after the pool's size and no disk.

    Raises SettingsError for a host tier that is larger than the machine's memory.
    """
    pool_bytes = backend.total_blocks * backend.bytes_per_block
    if settings.host_gib is None:
        host_bytes = default_host_bytes(backend.device, pool_bytes)
    else:
        host_bytes = int(settings.host_gib * GIB)
        if host_bytes > main_memory():
            raise SettingsError(
                f"--host-gib cannot be {settings.host_gib:g}: this machine has {main_memory() / GIB:.1f} GiB of memory"
            )
    return Tiers(
        backend,
        host_bytes=host_bytes,
        disk_bytes=int(settings.disk_gib * GIB),
        folder=settings.kv_folder,
        model=backend.fingerprint,
        notify=notify,
    )


def preemption_cost(settings: Settings, backend: Backend, tiers: Tiers, rates: Rates) -> PreemptionCost:
    """What it costs to copy a request's blocks, and to compute them again."""
    logs.event(
        logger,
        "rates_measured",
        copy_mib_per_s=round(tiers.copy_bytes_per_s / 2**20),
        prefill_tokens_per_s=round(rates.prefill_tokens_per_s),
        step_ms=round(1e3 * rates.base_s, 2),
        row_ms=round(1e3 * rates.row_s, 3),
        token_ms=round(1e3 * rates.token_s, 3),
        preemption=settings.preemption,
    )
    return PreemptionCost(
        mode=cast("Mode", settings.preemption),
        block_bytes=backend.bytes_per_block,
        copy_bytes_per_s=max(1.0, tiers.copy_bytes_per_s),
        prefill_tokens_per_s=rates.prefill_tokens_per_s,
    )
