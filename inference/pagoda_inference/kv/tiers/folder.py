"""The disk tier's folder: its owner's alone, one engine's at a time, with the secret that the index hashes under."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

SECRET_BYTES = 32


class FolderTaken(OSError):
    """Another engine has the folder."""


class Folder:
    """A folder of mode 0700, locked for as long as this is open. The kernel lets go of the lock when its holder dies.

    Raises FolderTaken, or another OSError where the folder cannot be had.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        path.chmod(0o700)
        self.path = path
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise FolderTaken(f"another engine uses {path}") from None

    def secret(self) -> bytes:
        """The secret that was kept here, or a new one where there is none (32 bytes, mode 0600)."""
        path = self.path / "secret"
        try:
            secret = path.read_bytes()
            path.chmod(0o600)
        except FileNotFoundError:
            secret = b""
        if len(secret) != SECRET_BYTES:
            secret = secrets.token_bytes(SECRET_BYTES)
            replace(path, secret)
        return secret

    def close(self) -> None:
        """Let others have it. Closing twice does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def replace(path: Path, content: bytes | bytearray) -> None:
    """Put a file (mode 0600) in place of another in one go, on the medium before this returns."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Names that came or went are so on the medium, too."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
