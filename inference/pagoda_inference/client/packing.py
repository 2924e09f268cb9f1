"""A command as the bytes that are sent, or the reason why it cannot be."""

from __future__ import annotations

import msgspec

from pagoda_inference.client.errors import EngineRefused
from pagoda_inference.protocol import MAX_MESSAGE_BYTES, Command, Error, encode


def packed(command: Command) -> bytes:
    """Raises EngineRefused for what no message can carry: numbers of more than 64 bits, half characters, too much."""
    try:
        data = encode(command)
    except (OverflowError, TypeError, UnicodeError, msgspec.MsgspecError) as error:
        raise EngineRefused(Error("invalid_request", f"the command cannot be sent: {error}")) from None
    if len(data) > MAX_MESSAGE_BYTES:
        raise EngineRefused(
            Error(
                "invalid_request",
                f"the command has {len(data)} bytes and a message at most {MAX_MESSAGE_BYTES}: shorten the prompt",
                {"bytes": len(data), "limit": MAX_MESSAGE_BYTES},
            )
        )
    return data
