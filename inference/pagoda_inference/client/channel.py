"""How both clients reach an engine: gRPC's options, credentials, and what its errors mean here."""

from __future__ import annotations

import os
from pathlib import Path

import grpc

from pagoda_inference.address import Address
from pagoda_inference.client.errors import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import Error

UNARY_TIMEOUT_S = 10.0
PUBLISH_TIMEOUT_S = 120.0
"""A published text is computed at once, which takes a while on a CPU."""

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel really is a new connection
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
]

_GONE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
}


def credentials(address: Address) -> grpc.ChannelCredentials | None:
    """TLS credentials for a ``tls:`` address: the authorities in PAGODA_ENGINE_CA (a PEM file), or the system's."""
    if not address.tls:
        return None
    authorities = os.environ.get("PAGODA_ENGINE_CA")
    return grpc.ssl_channel_credentials(Path(authorities).read_bytes() if authorities else None)


def metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """What every call carries."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def translate(error: grpc.RpcError, address: Address) -> EngineUnavailable | EngineRefused:
    """gRPC's error as one of ours."""
    code, details = error.code(), error.details() or ""
    if code in _GONE:
        return EngineUnavailable(f"the engine at {address} is not available: {details or code.name}")
    return EngineRefused(Error("invalid_request", details or code.name))
