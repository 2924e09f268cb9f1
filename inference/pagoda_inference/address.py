"""Where an engine listens: ``unix:/path/engine.sock``, ``host:port``, or ``tls:host:port``."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

MAX_SOCKET_PATH = 107
"""Bytes of a Unix socket's path (sun_path is 108 with its final zero; see unix(7))."""


class AddressError(ValueError):
    """The text is not an address. Its message says what was expected."""


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address: a Unix socket's ``path``, or ``host`` and ``port`` with or without TLS."""

    path: Path | None = None
    host: str = ""
    port: int = 0
    tls: bool = False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises AddressError with one sentence."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:").removeprefix("//")
            if not path:
                raise AddressError(f"{text!r} names no socket: expected unix:/path/to/engine.sock")
            if len(os.fsencode(path)) > MAX_SOCKET_PATH:
                raise AddressError(f"the socket path {path} is longer than {MAX_SOCKET_PATH} bytes: take another")
            return cls(path=Path(path))
        tls = text.startswith("tls:")
        host, separator, port = text.removeprefix("tls:").rpartition(":")
        if not (separator and host and port.isdigit() and int(port) < 65536):
            raise AddressError(f"{text!r} is not an address: expected unix:/path, host:port or tls:host:port")
        return cls(host=host.strip("[]"), port=int(port), tls=tls)

    @property
    def target(self) -> str:
        """The name gRPC dials or binds."""
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it: a Unix socket or a loopback address."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"tls:{self.target}" if self.tls else self.target


def default_address(home: Path) -> str:
    """The engine's address under PAGODA_HOME, the same for the engine and for whoever calls it.

    ``unix:<home>/run/engine.sock``; where that path is too long for a socket, a short one under the system's temporary
    directory, derived from ``home`` and the user.
    """
    home = home.absolute()
    path = home / "run" / "engine.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
        path = Path(tempfile.gettempdir()) / f"pagoda-{os.getuid()}-{digest}" / "engine.sock"
    return f"unix:{path}"
