"""One POST to an address that was checked: connected to that address, with the name kept for TLS; no redirects."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress

from pagoda.batches.public_address import Target

TIMEOUT_S = 5.0
"""From the connection's begin to the answer's head, all together."""


class PostFailed(Exception):
    """No answer came. The message says why."""


def post(target: Target, address: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status that the answer has; its body is not read. Raises PostFailed."""
    connection = _Pinned(target, address)
    too_late = threading.Timer(TIMEOUT_S, connection.abort)
    too_late.start()
    try:
        connection.request("POST", target.path, body, dict(headers))
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        if connection.aborted or isinstance(error, TimeoutError):
            raise PostFailed(f"no answer within {TIMEOUT_S:.0f} seconds") from None
        raise PostFailed(type(error).__name__) from error
    finally:
        too_late.cancel()
        connection.close()


class _Pinned(http.client.HTTPConnection):
    """Connects to ``address`` whatever the host's name leads to by now."""

    def __init__(self, target: Target, address: str) -> None:
        super().__init__(target.host, target.port, timeout=TIMEOUT_S)
        if target.secure:
            self.default_port = http.client.HTTPS_PORT
        self.aborted = False
        self._target = target
        self._address = address

    def connect(self) -> None:
        """Open the socket, and TLS for the host's name."""
        self.sock = socket.create_connection((self._address, self._target.port), self.timeout)
        if self._target.secure:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self._target.host)
        if self.aborted:
            raise TimeoutError

    def abort(self) -> None:
        """End it from another thread."""
        self.aborted = True
        with suppress(OSError, AttributeError):
            self.sock.shutdown(socket.SHUT_RDWR)
