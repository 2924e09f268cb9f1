"""The service: its methods, and how their messages become bytes.

gRPC carries the structs as msgpack through custom serialisers, made of this table.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pagoda_inference.protocol.generation import Command, Frame
from pagoda_inference.protocol.model import Detokenize, GetModels, ModelInfo, Text, Tokenize, Tokens
from pagoda_inference.protocol.pool import (
    AccountsSet,
    PoolReport,
    Publish,
    Published,
    Purge,
    Purged,
    SetAccounts,
    Watch,
)

PROTOCOL_VERSION = 1
SERVICE = "pagoda.inference.v1.Engine"
MAX_MESSAGE_BYTES = 16 << 20
"""A message's limit: far above any prompt that fits a context."""

METHODS: dict[str, tuple[Any, Any]] = {
    "Stream": (Command, Frame),
    "SetAccounts": (SetAccounts, AccountsSet),
    "Publish": (Publish, Published),
    "Purge": (Purge, Purged),
    "GetModels": (GetModels, ModelInfo),
    "Tokenize": (Tokenize, Tokens),
    "Detokenize": (Detokenize, Text),
    "Watch": (Watch, PoolReport),
}
"""Method name -> (request type, response type). Stream is bidirectional, Watch streams replies, the rest are unary."""

_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: msgspec.msgpack.Decoder(kind) for pair in METHODS.values() for kind in pair}


def encode(message: Any) -> bytes:
    """One wire struct as msgpack."""
    return _encoder.encode(message)


def decoder(kind: Any) -> Any:
    """The deserialiser for ``kind`` (a type named in METHODS). Raises msgspec.ValidationError on anything else."""
    return _decoders[kind].decode


def method_path(name: str) -> str:
    """gRPC's path of a method: ``/pagoda.inference.v1.Engine/Stream``."""
    return f"/{SERVICE}/{name}"
