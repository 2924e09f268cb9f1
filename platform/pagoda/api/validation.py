"""What is wrong with a request, told by its first fault: which field, and what it should be. The input is not shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from ninja.errors import ValidationError

from pagoda.api.errors import ApiError
from pagoda.api.requests.elsewhere import is_offered_elsewhere

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_MISSING = frozenset({"missing", "union_tag_not_found"})
_MAPS = frozenset({"logit_bias", "metadata"})
"""Fields whose names are the client's own: none of those is required."""
_EXPECTED = "Input should be "
_ALTERNATIVES = 8

_NOWHERE = object()


def as_error(request: HttpRequest, error: ValidationError) -> ApiError:
    """The API's error for what ninja found wrong."""
    first = error.errors[0]
    source, *location = first["loc"]
    if source != "body":
        return ApiError("invalid_value", f"{first['msg']}.", field_path(location[-1:]))
    return _of_body(error.errors, getattr(request, "json_body", None))


def _of_body(faults: Sequence[dict[str, Any]], body: Any) -> ApiError:
    first = faults[0]
    kind, location = first["type"], _in_body(first)
    if kind == "extra_forbidden":
        return ApiError(
            "unknown_field",
            "There is no such field: /v1/docs lists those there are.",
            field_path(_real_path(location, body, keep_last=False)),
        )
    path = _real_path(location, body, keep_last=kind in _MISSING)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        path = [*path, *_discriminator(first)]
    value = _value_at(path, body)
    if kind in _MISSING and value is _NOWHERE:
        return ApiError("missing_field", "This field is required.", field_path(path))
    if value is None and not _is_one_of_many(path):
        return ApiError(
            "missing_field", "This field is required: null is the same as leaving it out.", field_path(path)
        )
    if kind == "none_required" or (kind == "too_long" and first["ctx"]["max_length"] == 0):
        return ApiError("unsupported_value", "This is not offered.", field_path(path))
    expected = _tags(first) if kind == "union_tag_invalid" else _alternatives(faults, path, body)
    if is_offered_elsewhere(path, value):
        return ApiError("unsupported_value", f"This is not offered here. {expected}", field_path(path))
    return ApiError("invalid_value", expected, field_path(path))


def _in_body(fault: dict[str, Any]) -> list[Any]:
    """Ninja's location begins with the source and the name of the view's argument."""
    return list(fault["loc"][2:])


def _real_path(location: Sequence[Any], body: Any, *, keep_last: bool) -> list[Any]:
    """The location without the names of branches that pydantic tried, which are in no body."""
    path: list[Any] = []
    here = body
    for step in location:
        inner = _inside(here, step)
        if inner is not _NOWHERE:
            path.append(step)
            here = inner
    if keep_last and location and (not path or path[-1] != location[-1]) and isinstance(here, dict):
        path.append(location[-1])
    return path


def _inside(here: Any, step: Any) -> Any:
    if isinstance(here, dict) and step in here:
        return here[step]
    if isinstance(here, list) and isinstance(step, int) and step < len(here):
        return here[step]
    return _NOWHERE


def _value_at(path: Sequence[Any], body: Any) -> Any:
    for step in path:
        body = _inside(body, step)
    return body


def _is_one_of_many(path: Sequence[Any]) -> bool:
    """An item of a list, or of an object whose names the client chooses."""
    return not path or isinstance(path[-1], int) or (len(path) > 1 and path[-2] in _MAPS)


def field_path(steps: Sequence[Any]) -> str | None:
    """``messages[0].role``. Names that a client made up are shown where they are plain and short."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif isinstance(step, str) and _PLAIN_NAME.fullmatch(step):
            text += f".{step}" if text else step
        else:
            break
    return text or None


def _discriminator(error: dict[str, Any]) -> list[str]:
    name = str(error.get("ctx", {}).get("discriminator", "")).strip("'")
    return [name] if _PLAIN_NAME.fullmatch(name) else []


def _tags(error: dict[str, Any]) -> str:
    return f"This must be one of {error['ctx']['expected_tags']}."


def _alternatives(faults: Sequence[dict[str, Any]], path: list[Any], body: Any) -> str:
    """What the value should be. Each branch of a union that it is not in is a fault of its own, in the same place."""
    told: list[str] = []
    for fault in faults[:_ALTERNATIVES]:
        message = str(fault["msg"])
        if _real_path(_in_body(fault), body, keep_last=False) != path or not message.startswith(_EXPECTED):
            break
        if message.removeprefix(_EXPECTED) not in told:
            told.append(message.removeprefix(_EXPECTED))
    return f"{_EXPECTED}{' or '.join(told)}." if told else f"{faults[0]['msg']}."
