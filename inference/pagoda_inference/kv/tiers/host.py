"""The host tier: payloads in main memory, of cached blocks and of swapped requests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pagoda_inference.kv.tiers.space import Copy

if TYPE_CHECKING:
    from pagoda_inference.kv.entry import Entry


class HostCopy(Copy):
    """``entry.host``. The payload is None until the copy thread has read it, and is never written again after that."""

    __slots__ = ("payload",)

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.root.account, entry)
        self.payload: bytearray | None = None


class Stowed:
    """The blocks of a swapped request, in the order they were given. ``live`` until it is discarded.

    size: its bytes in the account's quota.
    """

    __slots__ = ("account", "count", "live", "payloads", "size")

    def __init__(self, account: str, count: int, size: int) -> None:
        self.account = account
        self.count = count
        self.size = size
        self.live = True
        self.payloads: list[bytearray] = []


def default_host_bytes(device: str, pool_bytes: int) -> int:
    """Size of the host tier where nobody set one: beside a pool in main memory a quarter of it; beside one on a GPU as
    much as the pool, but at most a quarter of main memory."""
    return pool_bytes // 4 if device.startswith("cpu") else min(pool_bytes, main_memory() // 4)


def main_memory() -> int:
    """Bytes of main memory that this process may ever have: the machine's, or its control group's."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return total  # no control group, or one without a limit
