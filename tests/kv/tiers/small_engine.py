"""A pool of bytes with tiers below it, without a model: every block's content is known, every job runs when told."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pagoda_inference.kv.block import Block
from pagoda_inference.kv.entry import Entry, ScopeRoot
from pagoda_inference.kv.tiers.copier import ManualCopier
from pagoda_inference.kv.tiers.tiers import Tiers

SIZE = 96
"""Bytes of a block."""


class BytesBackend:
    """Blocks of SIZE bytes. ``broken``: every copy fails."""

    block_size = 4
    total_blocks = 1024
    bytes_per_block = SIZE
    dtype = "bytes"
    device = "cpu"

    def __init__(self) -> None:
        self.blocks = [bytes(SIZE)] * self.total_blocks
        self.broken = False

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        if self.broken:
            raise RuntimeError("the device is gone")
        return [bytearray(self.blocks[id]) for id in ids]

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        if self.broken:
            raise RuntimeError("the device is gone")
        for id, payload in zip(ids, payloads, strict=True):
            assert len(payload) == SIZE
            self.blocks[id] = bytes(payload)


def content(entry: Entry) -> bytes:
    """What the entry's KV is: a marker that can be looked for in files."""
    return b"<KV>" + entry.key + entry.key[::-1] + b"." * (SIZE - 68)


class SmallEngine:
    """Tiers over a BytesBackend, and an index that is a list. ``gone`` collects the entries that lost everything."""

    def __init__(self, folder: Path | None = None, *, host: int = 8, disk: int = 8, model: str = "tiny") -> None:
        self.backend = BytesBackend()
        self.copier = ManualCopier()
        self.tiers = Tiers(
            self.backend,  # type: ignore[arg-type]
            host_bytes=host * SIZE,
            disk_bytes=disk * SIZE if folder is not None else 0,
            folder=folder,
            model=model,
            copier=self.copier,
        )
        self.gone: list[Entry] = []
        self.tiers.on_gone = self.gone.append
        self.roots: dict[tuple[str, str], ScopeRoot] = {}
        self._block = 0

    def root(self, account: str, scope: str = "all") -> ScopeRoot:
        key = hashlib.sha256(f"{account} {scope}".encode()).digest()
        return self.roots.setdefault((account, scope), ScopeRoot(account, scope, b"", key))

    def entry(self, account: str, text: str, parent: Entry | None = None, lineages: Sequence[str] = ("",)) -> Entry:
        """A new entry of the account that lies in no place yet."""
        root = self.root(account)
        before: Entry | ScopeRoot = parent or root
        packed = text.encode().ljust(16, b"\0")
        entry = Entry(hashlib.sha256(before.key + packed).digest(), packed, before, root)
        entry.used_by = set(lineages)
        return entry

    def chain(self, account: str, text: str, length: int) -> list[Entry]:
        entries: list[Entry] = []
        for index in range(length):
            entries.append(self.entry(account, f"{text} {index}", entries[-1] if entries else None))
        return entries

    def compute(self, entry: Entry) -> int:
        """The entry's KV is written into a block of the pool; which."""
        self._block = max(64, (self._block + 1) % self.backend.total_blocks)  # what is below is for loads
        self.backend.blocks[self._block] = content(entry)
        entry.block = Block(self._block)
        return self._block

    def store(self, *entries: Entry, run: bool = True) -> list[str]:
        """Compute, copy to the host, and evict from the pool when that has ended. The list fills when it has."""
        blocks = [self.compute(entry) for entry in entries]
        ended: list[str] = []

        def done() -> None:
            ended.append("done")
            for entry in entries:
                entry.block = None

        self.tiers.store(entries, blocks, done)
        if run:
            self.run()
        return ended

    def stored(self, account: str, *texts: str) -> list[Entry]:
        """Entries without a chain, stored one after the other."""
        entries = [self.entry(account, text) for text in texts]
        for entry in entries:
            self.store(entry)
        return entries

    def load(self, *entries: Entry, run: bool = True) -> list[int]:
        """Copy to blocks 0, 1, …; the list gets how many arrived, whose bytes are checked."""
        blocks = list(range(len(entries)))
        arrived: list[int] = []

        def done(count: int) -> None:
            arrived.append(count)
            for block, entry in zip(blocks[:count], entries, strict=False):
                assert self.backend.blocks[block] == content(entry)

        self.tiers.load(entries, blocks, done)
        if run:
            self.run()
        return arrived

    def run(self) -> None:
        """Let the copy thread do all it has to, and hear of it, until nothing is left."""
        while not self.tiers.idle:
            self.copier.release()
            self.tiers.poll()


def files_with(folder: Path, marker: bytes) -> list[str]:
    """Files under the folder that contain the bytes."""
    return [str(path) for path in sorted(folder.rglob("*")) if path.is_file() and marker in path.read_bytes()]
