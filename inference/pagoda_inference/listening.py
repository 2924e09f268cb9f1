"""Taking an address to listen on: one engine per address, stale sockets removed, nobody else's hands on it."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pagoda_inference.address import Address


class AddressTaken(Exception):
    """The address cannot be had. The message is one sentence for the operator."""


@contextmanager
def claim(address: Address, home: Path | None = None) -> Iterator[None]:
    """Own ``address`` for a while. Raises AddressTaken.

    A Unix socket is owned by locking a file beside it: the kernel lets go of the lock when its holder dies, however it
    dies. The socket's directory is made for its owner alone; those above it are made only where it is below ``home``. A
    TCP address is left to ``bind``.
    """
    if address.path is None:
        yield
        return
    path = address.path.absolute()
    _make_private(path.parent, with_parents=home is not None and path.is_relative_to(home.absolute()))
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise AddressTaken(
            f"no socket can be made in {path.parent}: {error.strerror}; choose another address"
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AddressTaken(f"another engine is listening on {address}: stop it first, or choose another") from None
        _remove_stale(address.path)
        yield
        with suppress(FileNotFoundError):
            address.path.unlink()
    finally:
        os.close(lock)


def _make_private(directory: Path, *, with_parents: bool) -> None:
    try:
        directory.mkdir(mode=0o700, parents=with_parents, exist_ok=True)
    except OSError as error:
        raise AddressTaken(
            f"the socket's directory {directory} cannot be made: {error.strerror}; choose another address"
        ) from None
    if directory.stat().st_uid != os.getuid():
        raise AddressTaken(f"the socket's directory {directory} belongs to another user")


def _remove_stale(path: Path) -> None:
    """Remove what a dead engine left; refuse to remove anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressTaken(f"{path} exists and is no socket: remove it or choose another address")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise AddressTaken(f"something is listening on unix:{path} already")
