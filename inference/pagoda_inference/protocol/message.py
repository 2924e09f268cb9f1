"""What all messages of the wire have in common, and how an error is told."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all wire structs: frozen, and silent about defaults."""


class Error(Message, frozen=True):
    """What happened, which limit, what to do.

    Codes: invalid_request, context_length_exceeded, kv_limit_exceeded, queue_full, unknown_account, not_found,
    seq_forgotten, model_error, engine_stopping, unavailable.
    """

    code: str
    message: str
    details: dict[str, int | str] = {}
