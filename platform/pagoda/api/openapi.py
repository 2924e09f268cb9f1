"""The API's description: ninja's, with the shapes of answers and every status that can occur."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import responses
from typing import Any

import msgspec
from ninja import NinjaAPI, Router
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import AsyncOperation

from pagoda.api import response_wire, wire
from pagoda.api.errors import ERROR_CODES, ErrorBody
from pagoda.api.idempotency import HEADER, MAX_KEY
from pagoda.api.operations import Operation

_TEMPLATE = "#/components/schemas/{name}"
_ANY_TIME = (401, 403, 404, 405, 500, 503)
_WITH_BODY = (400, 413, 415)
_REFUSING = (400,)
_WITH_LIMITS = (429,)
_REPEATABLE = (409,)

_EVENT = {
    "type": "object",
    "description": "Of each event. data: JSON of the shape x-data, or [DONE].",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}

_KEY_PARAMETER = {
    "in": "header",
    "name": HEADER,
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": "^[!-~]+$"},
    "description": "The same key again gives the first call's answer, for a day.",
}

Shape = type[msgspec.Struct]


@dataclass(frozen=True, slots=True)
class _Described:
    """What an address answers: whole, streamed, and with which statuses beside those that all have."""

    answer: Shape | None = None
    streamed: Shape | None = None
    repeatable: bool = False
    refuses: bool = False


_described: dict[tuple[str, str], _Described] = {
    ("get", "/v1/models"): _Described(wire.ModelList),
    ("get", "/v1/models/{model}"): _Described(wire.Model),
    ("post", "/v1/chat/completions"): _Described(wire.ChatCompletion, wire.ChatChunk, repeatable=True),
    ("post", "/v1/completions"): _Described(wire.Completion, wire.Completion, repeatable=True),
    ("post", "/v1/responses"): _Described(response_wire.Response, response_wire.ResponseEvent, repeatable=True),
    ("post", "/v1/embeddings"): _Described(),
    ("post", "/v1/tokenize"): _Described(wire.TokenizeResult),
    ("post", "/v1/detokenize"): _Described(wire.DetokenizeResult),
}


def describe(
    method: str,
    path: str,
    answer: Shape | None,
    streamed: Shape | None = None,
    *,
    repeatable: bool = False,
    refuses: bool = False,
) -> None:
    """Say what an address answers.

    repeatable: it takes an Idempotency-Key and counts against limits. refuses: 400 for what is not possible now, also
    where neither a body nor a query can be wrong.
    """
    _described[method, path] = _Described(answer, streamed, repeatable, refuses)


class DescribedAPI(NinjaAPI):
    """Ninja's API, whose OpenAPI file says what every address answers. Computed once."""

    _schema: OpenAPISchema | None = None

    def add_router(self, prefix: str, router: Router | str, **options: Any) -> None:
        """Ninja's, with operations of our own: it has no other way to choose them."""
        assert isinstance(router, Router)
        for addressed in router.path_operations.values():
            for operation in addressed.operations:
                if isinstance(operation, AsyncOperation):
                    operation.__class__ = Operation
        super().add_router(prefix, router, **options)

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        if self._schema is None:
            self._schema = _completed(super().get_openapi_schema(**options))
        return self._schema


def _completed(schema: OpenAPISchema) -> OpenAPISchema:
    shapes = {shape for each in _described.values() for shape in (each.answer, each.streamed) if shape}
    _, components = msgspec.json.schema_components([ErrorBody, *sorted(shapes, key=str)], ref_template=_TEMPLATE)
    known = schema["components"].setdefault("schemas", {})
    for name, shape in components.items():
        assert name not in known, f"{name} is the name of a request's shape already"
        known[name] = shape
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            answers = _answers(operation, _described.get((method, path), _Described()))
            if (method, path) not in _described and 200 in operation["responses"]:
                answers = {200: operation["responses"][200]} | answers
            operation["responses"] = answers
    return schema


def _answers(operation: dict[str, Any], described: _Described) -> dict[int, dict[str, Any]]:
    statuses = [*_ANY_TIME]
    if "requestBody" in operation:
        statuses += _WITH_BODY
    elif described.refuses or any(parameter["in"] == "query" for parameter in operation["parameters"]):
        statuses += _REFUSING
    if described.repeatable:
        statuses += (*_WITH_LIMITS, *_REPEATABLE)
        operation["parameters"].append(_KEY_PARAMETER)
    answers: dict[int, dict[str, Any]] = {}
    if described.answer is not None:
        content: dict[str, Any] = {"application/json": {"schema": _reference(described.answer)}}
        if described.streamed is not None:
            content["text/event-stream"] = {"schema": _EVENT, "x-data": _reference(described.streamed)}
        answers[200] = {"description": "OK", "content": content}
    for status in sorted(statuses):
        codes = ", ".join(code for code, its_status in ERROR_CODES.items() if its_status == status)
        answers[status] = {
            "description": f"{responses[status]}: {codes}",
            "content": {"application/json": {"schema": _reference(ErrorBody)}},
        }
    return answers


def _reference(shape: Shape) -> dict[str, str]:
    return {"$ref": _TEMPLATE.format(name=shape.__name__)}
