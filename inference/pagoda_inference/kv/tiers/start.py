"""What the tiers do once, at the engine's start: take the folder, or see to it that nothing stays in it; measure."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pagoda_inference import logs
from pagoda_inference.kv.tiers.disk import Disk, erase_left_behind

if TYPE_CHECKING:
    from pagoda_inference.model.backend import Backend

logger = logging.getLogger(__name__)

_MEASURED_BLOCKS = 4


def open_disk(folder: Path, backend: Backend, model: str) -> Disk | None:
    """The disk tier's files; None, and a line in the log, where they cannot be had (another engine has them, say)."""
    try:
        return Disk(
            folder,
            model=model,
            block_size=backend.block_size,
            block_bytes=backend.bytes_per_block,
        )
    except OSError as error:
        logs.failure(logger, "disk_tier_off", error, folder=str(folder), reason=error.strerror or str(error))
        return None


def leave_nothing(folder: Path) -> None:
    """There is no disk tier any more: erase what an earlier one left, unless another engine uses it."""
    try:
        erase_left_behind(folder)
    except OSError as error:
        logs.failure(logger, "disk_tier_not_erased", error, folder=str(folder), reason=error.strerror or str(error))


def measure_copies(backend: Backend) -> float:
    """Bytes per second from the pool to the host and back, before anybody uses the pool: some blocks are read and put
    back as they were. The second time counts, into fresh memory, as in a tier that still grows."""
    blocks = range(min(_MEASURED_BLOCKS, backend.total_blocks))
    took, payloads = 0.0, []
    for _ in range(2):
        begin = time.perf_counter()
        payloads.append(backend.read_blocks(blocks))
        backend.write_blocks(blocks, payloads[-1])
        took = time.perf_counter() - begin
    return 2 * len(blocks) * backend.bytes_per_block / max(took, 1e-9)
