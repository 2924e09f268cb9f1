"""The size of JSON schemas: refused by the number of their parts, before anything is made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pagoda.api.errors import ApiError

MAX_SCHEMA_BYTES = 64 << 10
"""Of all schemas of a request, as JSON. The engine's own limit."""
_LEAST_BYTES = 2
"""Of a part in JSON: itself, and what divides it from the next."""


def check_schemas(schemas: Iterable[Any], message: str, param: str) -> None:
    """Raises ApiError(invalid_value) with the message where the schemas cannot be written in MAX_SCHEMA_BYTES.

    Cheap for any size. What passes may still be too long by its texts.
    """
    room = MAX_SCHEMA_BYTES // _LEAST_BYTES
    waiting = list(schemas)
    while waiting:
        part = waiting.pop()
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        room -= 1 + len(inner)
        if room < 0:
            raise ApiError("invalid_value", message, param)
        waiting.extend(each for each in inner if isinstance(each, dict | list))
