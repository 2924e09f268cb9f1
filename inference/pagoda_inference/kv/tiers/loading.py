"""One load: a chain's copies, from wherever they are, into blocks of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagoda_inference.kv.tiers.disk import Disk, DiskCopy
from pagoda_inference.kv.tiers.host import HostCopy
from pagoda_inference.kv.tiers.space import Copy

if TYPE_CHECKING:
    from pagoda_inference.kv.entry import Entry
    from pagoda_inference.model.backend import Backend

_AT_A_TIME = 16
"""Payloads read before they are written on: bounds the memory of a long load from disk."""


class Load:
    """sources: the copies to read, up to the first entry that has none; the host's where there are two.

    arrived: how many are in their blocks. damaged: the disk's copy that ended it, and why.
    """

    def __init__(self, backend: Backend, entries: Sequence[Entry], blocks: Sequence[int], disk: Disk | None) -> None:
        self.sources: list[HostCopy | DiskCopy] = []
        for entry in entries:
            source = _source(entry)
            if source is None:
                break
            self.sources.append(source)
        self.arrived = 0
        self.damaged: tuple[DiskCopy, OSError] | None = None
        self._backend = backend
        self._blocks = blocks
        self._disk = disk

    def run(self) -> None:
        """On the copy thread."""
        for begin in range(0, len(self.sources), _AT_A_TIME):
            payloads = []
            for source in self.sources[begin : begin + _AT_A_TIME]:
                payload = self._payload(source)
                if payload is None:
                    break
                payloads.append(payload)
            if payloads:
                self._backend.write_blocks(self._blocks[begin : begin + len(payloads)], payloads)
                self.arrived += len(payloads)
            if self.arrived < min(begin + _AT_A_TIME, len(self.sources)):
                return

    def intact(self) -> int:
        """How many arrived and still are what their entries say: the first of them that nobody forgot meanwhile."""
        alive = (index for index, source in enumerate(self.sources[: self.arrived]) if not source.live)
        return next(alive, self.arrived)

    def _payload(self, source: Copy) -> bytearray | None:
        if isinstance(source, HostCopy):
            return source.payload
        assert isinstance(source, DiskCopy)
        assert self._disk is not None
        try:
            return self._disk.read(source)
        except OSError as error:
            self.damaged = source, error
            return None


def _source(entry: Entry) -> HostCopy | DiskCopy | None:
    for copy in (entry.host, entry.disk):
        if isinstance(copy, HostCopy | DiskCopy) and copy.live:
            return copy
    return None
