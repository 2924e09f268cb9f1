"""The disk tier's files: a payload each, and the manifest. All but the beginning runs on the copy thread."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pagoda_inference.kv.tiers import manifest
from pagoda_inference.kv.tiers.folder import Folder, sync_folder
from pagoda_inference.kv.tiers.manifest import Head, Manifest, Record
from pagoda_inference.kv.tiers.space import Copy

if TYPE_CHECKING:
    from pagoda_inference.kv.entry import Entry

_PAYLOAD_NAME = re.compile(r"[0-9a-f]{16}\.kv")


class DamagedPayload(OSError):
    """A payload file is not what was written."""


class DiskCopy(Copy):
    """``entry.disk``. The record belongs to the copy thread, what ``lineages`` it is to have to the engine's."""

    __slots__ = ("lineages", "record")

    def __init__(self, record: Record, entry: Entry | None) -> None:
        super().__init__(record.account, entry)
        self.record = record
        self.lineages = record.lineages


class Disk:
    """Payloads of ``block_bytes`` each in a folder that is ours. Raises OSError where it cannot be used.

    What another model, block size or secret left, what is torn, truncated or beyond use because what comes before it is
    missing, is removed. Files that are not ours are left alone.
    """

    def __init__(self, path: Path, *, model: str, block_size: int, block_bytes: int) -> None:
        self._folder = Folder(path)
        try:
            self.secret = self._folder.secret()
            self._block_bytes = block_bytes
            self._payloads = path / "payloads"
            self._payloads.mkdir(mode=0o700, exist_ok=True)
            digest = hashlib.sha256(b"pagoda tier" + self.secret).digest()
            head = Head(model, block_size, block_bytes, digest)
            sizes = _payload_sizes(self._payloads)
            self.records = _whole_chains(
                record for record in manifest.read(path / "manifest", head) if sizes.get(record.id) == block_bytes
            )
            """What was found intact, oldest first."""
            for id in sizes.keys() - {record.id for record in self.records}:
                remove(self._file_of(id))
            self._manifest = Manifest(path / "manifest", head, self.records)
            self._next_id = max(sizes, default=0) + 1
        except BaseException:
            self._folder.close()
            raise
        self.unerased: set[int] = set()
        """Payloads that could not be erased yet; every later change tries again."""

    def new_id(self) -> int:
        """A number that no payload here ever had. (On the engine's thread.)"""
        self._next_id += 1
        return self._next_id - 1

    def write(self, copy: DiskCopy, payload: bytes | bytearray) -> None:
        """Store a payload and its record. Raises OSError: then there is neither."""
        self._erase_left_over()
        record = msgspec.structs.replace(copy.record, digest=_digest(copy.record.key, payload))
        try:
            write_file(self._file_of(record.id), payload)
            self._manifest.append(record)
        except OSError:
            self._erase(record.id)
            raise
        copy.record = record

    def read(self, copy: DiskCopy) -> bytearray:
        """The payload as it was written. Raises OSError where it is not there any more, or not intact."""
        payload = bytearray(self._block_bytes)
        with open(self._file_of(copy.record.id), "rb", buffering=0) as file:
            view, filled = memoryview(payload), 0
            while filled < len(payload) and (count := file.readinto(view[filled:])):
                filled += count
        if filled < len(payload) or _digest(copy.record.key, payload) != copy.record.digest:
            raise DamagedPayload(f"payload {copy.record.id:016x} is damaged")
        return payload

    def relabel(self, copy: DiskCopy, lineages: tuple[str, ...]) -> None:
        """Record other lineages. Raises OSError."""
        if copy.record.digest and copy.record.lineages != lineages:  # it was written, and otherwise
            copy.record = msgspec.structs.replace(copy.record, lineages=lineages)
            self._manifest.append(copy.record)

    def erase(self, ids: Iterable[int]) -> bool:
        """Payloads and records are gone from the files. What cannot be erased now is remembered: False then."""
        self._erase_left_over()
        for id in ids:
            self._erase(id)
        with suppress(OSError):  # it is merely longer than it has to be
            self._manifest.compact()
        return not self.unerased

    def sync(self) -> None:
        """What was erased is gone from the medium, too. Raises OSError."""
        self._manifest.sync()
        sync_folder(self._payloads)

    def close(self) -> None:
        """Let another engine have the folder. Closing twice does nothing."""
        self._manifest.close()
        self._folder.close()

    def _erase_left_over(self) -> None:
        for id in list(self.unerased):
            self._erase(id)

    def _erase(self, id: int) -> None:
        self.unerased.add(id)
        with suppress(OSError):
            self._manifest.blank(id)
            remove(self._file_of(id))
            self.unerased.discard(id)

    def _file_of(self, id: int) -> Path:
        return self._payloads / f"{id:016x}.kv"


def erase_left_behind(path: Path) -> None:
    """There is no disk tier now: nothing of an earlier one stays, for nobody would delete it. Raises OSError."""
    if not (path / "manifest").exists() and not (path / "payloads").exists():
        return
    folder = Folder(path)
    try:
        for id in _payload_sizes(path / "payloads"):
            remove(path / "payloads" / f"{id:016x}.kv")
        for name in ("manifest", "manifest.new"):
            remove(path / name)
    finally:
        folder.close()


def write_file(path: Path, content: bytes | bytearray) -> None:
    """A whole new file of mode 0600, or OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)


def remove(path: Path) -> None:
    """No such file any more."""
    path.unlink(missing_ok=True)


def _payload_sizes(folder: Path) -> dict[int, int]:
    """Id -> bytes of the payload files that are there."""
    if not folder.exists():
        return {}
    with os.scandir(folder) as files:
        return {
            int(file.name[:16], 16): file.stat(follow_symlinks=False).st_size
            for file in files
            if _PAYLOAD_NAME.fullmatch(file.name) and file.is_file(follow_symlinks=False)
        }


def _whole_chains(records: Iterable[Record]) -> list[Record]:
    """Records that a chain from a root leads to; of two with one key the newer."""
    by_key = {record.key: record for record in records}
    reached: dict[bytes, bool] = {}
    for record in by_key.values():
        path: list[bytes] = []
        current: Record | None = record
        while current is not None and current.key not in reached:
            path.append(current.key)
            reached[current.key] = current.parent is None  # False until shown: a circle leads nowhere
            current = None if current.parent is None else by_key.get(current.parent)
        leads = reached[current.key] if current is not None else bool(path) and reached[path[-1]]
        reached.update(dict.fromkeys(path, leads))
    return [record for record in by_key.values() if reached[record.key]]


def _digest(key: bytes, payload: bytes | bytearray) -> bytes:
    digest = hashlib.sha256(key)
    digest.update(payload)
    return digest.digest()
