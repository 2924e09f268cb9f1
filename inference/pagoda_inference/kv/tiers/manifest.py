"""The disk tier's list of payloads: one append-only file whose records can be blanked, but not changed.

Frames of ``kind (1 byte), length (4), CRC-32 of the body (4), body``, little-endian. The first is the Head: whose
payloads these are. A blanked frame has kind 0 and zeros for a body: the tokens of what was deleted are gone from the
file, too. A frame that is torn or damaged is skipped, and what cannot be told apart any more ends the list.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from pagoda_inference.kv.tiers.folder import replace

FORMAT = 1
_FRAME = struct.Struct("<BII")
_BLANK, _HEAD, _RECORD = 0, 1, 2
_COMPACT_BYTES = 1 << 20


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Payloads are of use to exactly this model, in blocks of this size, under this secret (a digest of it)."""

    model: str
    block_size: int
    block_bytes: int
    secret: bytes
    format: int = FORMAT


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One payload. parent: key of the record before it in its chain; None for the first after the scope's root.

    digest: SHA-256 of key and payload.
    """

    id: int
    account: str
    scope: str
    after: bytes
    key: bytes
    packed: bytes
    parent: bytes | None
    lineages: tuple[str, ...] = ()
    digest: bytes = b""


def read(path: Path, head: Head) -> list[Record]:
    """The records under ``head``, oldest first, of each id the newest. Empty where the file is another's or missing."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    records: dict[int, Record] = {}
    headed = False
    for kind, body in _frames(content):
        try:
            if kind == _HEAD:
                headed = msgspec.msgpack.decode(body, type=Head) == head
            elif headed:
                record = msgspec.msgpack.decode(body, type=Record)
                records.pop(record.id, None)
                records[record.id] = record
        except msgspec.MsgspecError:
            continue
    return list(records.values())


def _frames(content: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + _FRAME.size <= len(content):
        kind, length, checksum = _FRAME.unpack_from(content, position)
        position += _FRAME.size
        body = content[position : position + length]
        position += length
        if kind > _RECORD or position > len(content):
            return
        if kind != _BLANK and zlib.crc32(body) == checksum:
            yield kind, body


class Manifest:
    """The file, open for changes. Begins with ``records`` and nothing else, whatever was there. Raises OSError."""

    def __init__(self, path: Path, head: Head, records: Iterable[Record] = ()) -> None:
        self._path = path
        self._head = _frame(_HEAD, msgspec.msgpack.encode(head))
        self._places: dict[int, list[tuple[int, int]]] = {}
        """Id -> (offset, bytes) of its frames. The last is in force, others could not be blanked yet."""
        self._end = 0
        self._blanked = 0
        self._file = -1
        self._begin((record.id, _frame(_RECORD, msgspec.msgpack.encode(record))) for record in records)

    def append(self, record: Record) -> None:
        """Add a record; one with the same id is blanked after that."""
        frame = _frame(_RECORD, msgspec.msgpack.encode(record))
        try:
            write_at(self._file, frame, self._end)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise
        places = self._places.setdefault(record.id, [])
        places.append((self._end, len(frame)))
        self._end += len(frame)
        while len(places) > 1:
            self._blank(*places[0])
            del places[0]

    def blank(self, id: int) -> None:
        """The record is gone, from the file as well. Nothing happens where there is none."""
        places = self._places.get(id, [])
        while places:
            self._blank(*places[-1])
            places.pop()
        self._places.pop(id, None)

    def sync(self) -> None:
        """What was changed is on the medium."""
        os.fsync(self._file)

    def compact(self) -> None:
        """Write the file anew where most of it is blank."""
        if self._blanked > max(_COMPACT_BYTES, self._end - self._blanked):
            newest = ((id, places[-1]) for id, places in self._places.items())
            self._begin((id, os.pread(self._file, size, offset)) for id, (offset, size) in newest)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, frames: Iterable[tuple[int, bytes]]) -> None:
        content = bytearray(self._head)
        places = {}
        for id, frame in frames:
            places[id] = [(len(content), len(frame))]
            content += frame
        replace(self._path, content)
        self.close()
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._places, self._end, self._blanked = places, len(content), 0

    def _blank(self, offset: int, size: int) -> None:
        write_at(self._file, _FRAME.pack(_BLANK, size - _FRAME.size, 0) + bytes(size - _FRAME.size), offset)
        self._blanked += size


def write_at(file: int, content: bytes, offset: int) -> None:
    """All of ``content``, or OSError."""
    while content:
        written = os.pwrite(file, content, offset)
        content, offset = content[written:], offset + written


def _frame(kind: int, body: bytes) -> bytes:
    return _FRAME.pack(kind, len(body), zlib.crc32(body)) + body
