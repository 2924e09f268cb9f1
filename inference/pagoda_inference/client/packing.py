"""A command as the bytes that are sent, or the reason why it cannot be."""

from __future__ import annotations

import msgspec

from pagoda_inference.client.errors import EngineRefused
from pagoda_inference.protocol import MAX_MESSAGE_BYTES, Command, Error, Generate, encode


def packed(command: Command) -> bytes:
    """Raises EngineRefused for what no message can carry: numbers of more than 64 bits, half characters, too much."""
    if isinstance(command, Generate) and not _is_64_bits(seed := command.sampling.seed):
        raise EngineRefused(Error("invalid_request", f"seed must be a whole number of at most 64 bits, not {seed}"))
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


def _is_64_bits(number: int | None) -> bool:
    return number is None or -(2**63) <= number < 2**64
