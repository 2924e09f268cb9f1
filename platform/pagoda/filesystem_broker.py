"""The broker of the embedded mode: kombu's file system transport with messages that are whole or not there.

kombu creates a message's file before it writes it, and a worker that reads it in between ends with the error of an
empty file. Here a file gets its name when it is written, and one that cannot be read is set aside.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.utils.json import dumps, loads

logger = logging.getLogger(__name__)

WRITING, TAKEN, BROKEN = ".writing", ".taken", ".broken"
"""Ends of names that no queue has."""


class Channel(filesystem.Channel):
    """One connection to the folders that the transport options name."""

    def _put(self, queue: str, payload: dict[str, Any], **_: Any) -> None:  # type: ignore[override]
        # Sorted by name, messages are in the order they were sent.
        name = f"{time.time_ns()}_{uuid.uuid4()}.{queue}.msg"
        try:
            _write_whole(Path(self.data_folder_out, name), dumps(payload))
        except OSError as error:
            raise ChannelError(f"The message {name} cannot be stored: {error}") from error

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        folder = Path(self.data_folder_in)
        for name in sorted(os.listdir(folder)):
            if name.partition(".")[2] != f"{queue}.msg":
                continue
            taken = folder / f"{name}{TAKEN}"
            try:
                (folder / name).rename(taken)
            except OSError:
                continue  # another worker was first
            payload = _read(taken)
            if payload is None:
                taken.rename(folder / f"{name}{BROKEN}")
                continue
            taken.unlink(missing_ok=True)
            return payload
        raise Empty

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        # Where the exchange's file exists, kombu changes it under a lock; its creation alone is not safe.
        file = self._exchange_file(exchange)
        if not file.exists():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_whole(file, "[]", keep=True)
        super()._queue_bind(exchange, routing_key, pattern, queue)


class Transport(filesystem.Transport):
    """``broker_transport = "pagoda.filesystem_broker:Transport"``."""

    Channel = Channel


def _write_whole(path: Path, text: str, *, keep: bool = False) -> None:
    """The file appears with all its content. keep: what another process put there meanwhile stays."""
    writing = path.with_name(f"{path.name}.{uuid.uuid4()}{WRITING}")
    try:
        writing.write_text(text, encoding="utf-8")
        if keep:
            try:
                os.link(writing, path)
            except FileExistsError:
                return
        else:
            writing.rename(path)
    finally:
        writing.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    """A message, or None where the file holds none."""
    try:
        payload = loads(path.read_bytes())
        if isinstance(payload, dict) and "body" in payload and isinstance(payload.get("properties"), dict):
            return payload
        raise ValueError("it is no message")
    except Exception as error:  # whatever a file holds, the worker goes on with the next
        logger.error("a message of the broker cannot be read and is set aside (%s): %r", path, error)
        return None
