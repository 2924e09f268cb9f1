"""Bodies of requests: JSON as RFC 8259 has it, with nothing in it that could mean two things.

Refused, beside what is no JSON: names that occur twice in an object, NaN and Infinity, numbers beyond a double, halves
of surrogate pairs (no UTF-8 has them), nesting beyond what the parser's stack allows, and more parts than
``body_bounds`` allows.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser

from pagoda.api.body_bounds import check_names, check_parts
from pagoda.api.errors import ApiError

_SURROGATE = re.compile(rb"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


class StrictParser(Parser):
    """Ninja's parser of bodies. Keeps what it parsed as ``request.json_body``, to name the fields of errors by."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Raises ApiError."""
        if request.content_type != "application/json":
            raise ApiError("unsupported_media_type", "Send the body as JSON, with Content-Type: application/json.")
        body = parse(request.body)
        if not isinstance(body, dict):
            raise ApiError("invalid_json", "The body must be a JSON object.")
        request.json_body = body  # type: ignore[attr-defined]
        return body


def parse(data: bytes) -> Any:
    """Raises ApiError: invalid_json, which says where, never what; request_too_large for too many parts."""
    check_parts(data)
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_without_doubles, parse_float=_finite, parse_constant=_refuse_constant
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ApiError("invalid_json", f"The body is not JSON: line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise ApiError("invalid_json", "The body's JSON is nested too deeply.") from None
    except UnicodeDecodeError:
        raise ApiError("invalid_json", "The body is not UTF-8.") from None
    except UnicodeEncodeError:
        raise ApiError("invalid_json", "The body has half of a surrogate pair, which is no character.") from None
    except _Refused as error:
        raise ApiError("invalid_json", f"The body's JSON cannot be read: {error}.") from None
    except ValueError:
        # The only other one is Python's limit for the digits of whole numbers.
        raise ApiError("invalid_json", "The body's JSON cannot be read: a number has too many digits.") from None
    return value


class _Refused(ValueError):
    """What Python's parser would take and JSON does not have."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    check_names(len(pairs))
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Refused("an object has a name twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused("a number is too large")
    return number


def _refuse_constant(text: str) -> float:
    raise _Refused("NaN and Infinity are no JSON")
