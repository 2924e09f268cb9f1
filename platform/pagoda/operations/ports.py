"""Whether a port can be listened on."""

from __future__ import annotations

import errno
import os
import socket


def why_not_listening(host: str, port: int) -> str | None:
    """None when this process could listen on ``host:port`` now, else one sentence that says why not."""
    if not 0 < port < 65536:
        return f"Port {port} does not exist: choose one between 1 and 65535 with PAGODA_PORT."
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror:
        return f"{host} is not an address of this machine: correct PAGODA_HOST."
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server does: connections in TIME_WAIT do not count, a listener does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"Port {port} is taken by another program: stop it, or choose another port with PAGODA_PORT."
            if error.errno == errno.EACCES:
                return f"Port {port} needs privileges that you do not have: choose one above 1023 with PAGODA_PORT."
            return f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}. See PAGODA_HOST and PAGODA_PORT."
    return None
