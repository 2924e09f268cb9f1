"""Before a stop: what is on the host alone goes to disk."""

from __future__ import annotations

import time

from pagoda_inference.kv.tiers.copier import Copier
from pagoda_inference.kv.tiers.disk import DiskCopy
from pagoda_inference.kv.tiers.disk_tier import DiskTier
from pagoda_inference.kv.tiers.host_tier import HostTier


def flush(host: HostTier, disk: DiskTier, copier: Copier, timeout_s: float) -> None:
    """Write copies to disk, the last used first, as far as time and room reach. Waits: for the engine's stop alone."""
    end = time.monotonic() + timeout_s
    waiting = host.by_age()
    kept: list[DiskCopy] = []
    while waiting and time.monotonic() < end:
        copy = waiting[-1]
        entry = copy.entry
        if copy.live and copy.payload is not None and entry is not None and entry.disk is None:
            if disk.demote(entry, copy.payload, keep=True):
                assert isinstance(entry.disk, DiskCopy)
                kept.append(entry.disk)
            elif disk.waiting:
                copier.wait(max(0.0, end - time.monotonic()))
                copier.poll()
                continue
        waiting.pop()
    copier.wait(max(0.0, end - time.monotonic()))
    copier.poll()
    disk.release(reversed(kept))  # what was used last is evicted last
