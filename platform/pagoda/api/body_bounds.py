"""How many parts a body may be made of: counted before it is parsed, since what it is parsed into is what costs.

A body of 16 MiB can hold millions of lists or names, which take seconds to parse and to check, and are of no use. The
bounds leave room for whatever the API takes: 10 000 messages, 16 prompts of 131 072 tokens, schemas of 64 KiB.
"""

from __future__ import annotations

from pagoda.api.errors import ApiError

MAX_NAMES = 1 << 16
"""Names of fields, in all objects together; and objects and lists."""
MAX_VALUES = 1 << 21
"""Values in lists and objects, all together."""
MAX_NAMES_OF_ONE = 4096
"""Names of fields in one object."""
SMALL_BYTES = 1 << 16
"""A body of so many bytes is not counted: it cannot hold much."""

_WINDOW = 1 << 16
_MAX_QUOTES = 2 * (MAX_NAMES + MAX_VALUES)


def check_parts(data: bytes) -> None:
    """Raises ApiError(request_too_large) for JSON of more parts than any request has.

    Text within strings does not count, whatever is in it. What is no JSON may pass.
    """
    if len(data) <= SMALL_BYTES or _is_plain(data):
        return
    if b"\\" in data:
        # Pairs of backslashes first: what is left before a quotation mark escapes it.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    names = values = containers = quotes = 0
    for start in range(0, len(data), _WINDOW):
        pieces = data[start : start + _WINDOW].split(b'"')
        outside = b"".join(pieces[quotes % 2 :: 2])
        quotes += len(pieces) - 1
        names += outside.count(b":")
        values += outside.count(b",")
        containers += outside.count(b"{") + outside.count(b"[")
        if names > MAX_NAMES:
            raise _too_many("names of fields", MAX_NAMES)
        if containers > MAX_NAMES:
            raise _too_many("objects and lists", MAX_NAMES)
        if values > MAX_VALUES or quotes > _MAX_QUOTES:
            raise _too_many("values", MAX_VALUES)


def check_names(names: int) -> None:
    """Raises ApiError(request_too_large) for an object of so many names."""
    if names > MAX_NAMES_OF_ONE:
        raise ApiError("request_too_large", f"An object of the body may have {MAX_NAMES_OF_ONE} fields, this has more.")


def _is_plain(data: bytes) -> bool:
    """So few signs, wherever they are, that nothing can be too much: most bodies, which are mostly text."""
    return (
        data.count(b":") <= MAX_NAMES
        and data.count(b",") <= MAX_VALUES
        and data.count(b"{") + data.count(b"[") <= MAX_NAMES
    )


def _too_many(what: str, limit: int) -> ApiError:
    return ApiError("request_too_large", f"The body may have {limit} {what} in all, and has more.")
