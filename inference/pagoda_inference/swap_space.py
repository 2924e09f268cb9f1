"""The tiers below a loaded model's pool, and the rates that decide between copying and computing again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import cast

from pagoda_inference import logs
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.kv.tiers.host import default_host_bytes
from pagoda_inference.kv.tiers.tiers import Tiers
from pagoda_inference.model.backend import Backend, Chunk
from pagoda_inference.scheduling.swapping import Mode, PreemptionCost
from pagoda_inference.settings import Settings

logger = logging.getLogger(__name__)

GIB = 1 << 30
MEASURED_TOKENS = 64


def make_tiers(settings: Settings, backend: Backend, model_id: str, *, notify: Callable[[], None]) -> Tiers:
    """Host and disk tier as the settings say; by default a host tier after the pool's size and no disk."""
    pool_bytes = backend.total_blocks * backend.bytes_per_block
    if settings.host_gib is None:
        host_bytes = default_host_bytes(backend.device, pool_bytes)
    else:
        host_bytes = int(settings.host_gib * GIB)
    return Tiers(
        backend,
        host_bytes=host_bytes,
        disk_bytes=int(settings.disk_gib * GIB),
        folder=settings.kv_folder,
        model=f"{model_id} {backend.dtype}",
        notify=notify,
    )


def measure_cost(settings: Settings, backend: Backend, tiers: Tiers) -> PreemptionCost:
    """Tokens/s of a prompt, measured on the real backend, beside the tiers' bytes/s. Nothing else runs yet."""
    prefill = _prefill_tokens_per_s(backend)
    cost = PreemptionCost(
        mode=cast("Mode", settings.preemption),
        block_bytes=backend.bytes_per_block,
        copy_bytes_per_s=max(1.0, tiers.copy_bytes_per_s),
        prefill_tokens_per_s=prefill,
    )
    logs.event(
        logger,
        "rates_measured",
        copy_mib_per_s=round(tiers.copy_bytes_per_s / 2**20),
        prefill_tokens_per_s=round(prefill),
        preemption=settings.preemption,
    )
    return cost


def _prefill_tokens_per_s(backend: Backend) -> float:
    """The better of two runs of a short prompt, in blocks that nobody has yet."""
    tokens = max(1, min(MEASURED_TOKENS, backend.total_blocks * backend.block_size, backend.context_length - 1))
    blocks = list(range(-(-tokens // backend.block_size)))
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        backend.run([Chunk([backend.vocabulary_size // 2] * tokens, 0, blocks, Sampler())])
        seconds.append(time.perf_counter() - begin)
    return tokens / max(min(seconds), 1e-9)
