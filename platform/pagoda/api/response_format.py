"""The form that a request wants its answer in, as a grammar."""

from __future__ import annotations

import json
from typing import Any

from pagoda.api.errors import ApiError
from pagoda.api.requests.chat import JsonObjectFormat, JsonSchemaFormat, ResponseFormat
from pagoda.api.requests.responses import JsonObjectForm, JsonSchemaForm, TextOptions
from pagoda.api.schema_size import MAX_SCHEMA_BYTES, check_schemas
from pagoda_inference.protocol import Grammar


def grammar_of(wanted: ResponseFormat | None) -> Grammar | None:
    """None: any text. Raises ApiError: the schema is too large."""
    if isinstance(wanted, JsonObjectFormat):
        return Grammar("json_object")
    if isinstance(wanted, JsonSchemaFormat):
        return _of_schema(wanted.json_schema.schema_, "response_format.json_schema.schema")
    return None


def response_grammar(wanted: TextOptions | None) -> Grammar | None:
    """The same of POST /v1/responses."""
    form = wanted.format if wanted is not None else None
    if isinstance(form, JsonObjectForm):
        return Grammar("json_object")
    return _of_schema(form.schema_, "text.format.schema") if isinstance(form, JsonSchemaForm) else None


def _of_schema(schema: dict[str, Any] | None, param: str) -> Grammar:
    too_large = f"A schema may have {MAX_SCHEMA_BYTES} bytes."
    check_schemas([schema], too_large, param)
    source = json.dumps(schema or {}, ensure_ascii=False)
    if len(source.encode()) > MAX_SCHEMA_BYTES:
        raise ApiError("invalid_value", too_large, param)
    return Grammar("json_schema", source)
