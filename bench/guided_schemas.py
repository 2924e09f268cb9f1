"""Thirty JSON schemas of the kinds that callers send, each with a question whose answer is short."""

from __future__ import annotations

from typing import Any

JsonSchema = dict[str, Any]


def _closed(required: list[str] | None = None, /, **properties: JsonSchema) -> JsonSchema:
    """An object of exactly these properties, all of which it has unless ``required`` says which."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def _integer(least: int, most: int) -> JsonSchema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _text(most: int) -> JsonSchema:
    return {"type": "string", "minLength": 1, "maxLength": most}


def _list(items: JsonSchema, least: int, most: int) -> JsonSchema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


_PERSON = _closed(name=_text(30), age=_integer(0, 120))
_TREE = {
    "$defs": {
        "node": _closed(
            ["name"], name=_text(12), children={"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}
        )
    },
    "$ref": "#/$defs/node",
}
_EXPRESSION = {
    "$defs": {
        "term": {
            "anyOf": [
                _integer(0, 9),
                _closed(op={"enum": ["+", "-"]}, left=_integer(0, 9), right={"$ref": "#/$defs/term"}),
            ]
        }
    },
    "$ref": "#/$defs/term",
}

SCHEMAS: dict[str, tuple[str, JsonSchema]] = {
    "flat object": ("Who wrote Hamlet? Give the author's name and age at death.", _PERSON),
    "enum": (
        "Is 'I love this phone' positive, negative or neutral?",
        _closed(sentiment={"enum": ["positive", "negative", "neutral"]}),
    ),
    "enum of numbers": ("How many legs has a dog?", _closed(legs={"enum": [0, 2, 4, 6, 8]})),
    "const": ("Say that all is well.", _closed(status={"const": "ok"}, code={"const": 200})),
    "boolean": ("Is the earth flat?", _closed(answer={"type": "boolean"})),
    "null or text": (
        "What is the middle name of Plato?",
        _closed(middle_name={"type": ["string", "null"], "maxLength": 20}),
    ),
    "integer range": ("Give a rating from 1 to 5 for a good film.", _closed(rating=_integer(1, 5))),
    "negative range": ("How cold is it at the South Pole, in degrees Celsius?", _closed(celsius=_integer(-90, -10))),
    "number range": (
        "What is the probability of heads?",
        _closed(probability={"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.01}),
    ),
    "exclusive bounds": (
        "Give a small price in dollars.",
        _closed(price={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100, "multipleOf": 0.25}),
    ),
    "multiples": ("Name a multiple of five below one hundred.", _closed(number=_integer(0, 100) | {"multipleOf": 5})),
    "pattern": (
        "Write a phone number of the form 555-0123.",
        _closed(phone={"type": "string", "pattern": r"^[0-9]{3}-[0-9]{4}$"}),
    ),
    "pattern with choices": (
        "Write a product code such as AB-12.",
        _closed(code={"type": "string", "pattern": "^(AB|CD|EF)-[1-9][0-9]?$"}),
    ),
    "date": ("When did the first man walk on the moon?", _closed(date={"type": "string", "format": "date"})),
    "clock": ("When is noon?", _closed(time={"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"})),
    "uuid": ("Make up an identifier.", _closed(id={"type": "string", "format": "uuid"})),
    "bounded text": ("What is the capital of France?", _closed(capital=_text(20))),
    "list of words": ("Name three colours.", _closed(colours=_list(_text(12), 3, 3))),
    "list of enums": (
        "Which of red, green and blue are in the sky?",
        _list({"enum": ["red", "green", "blue"]}, 1, 3),
    ),
    "tuple": (
        "Give the first letter of the alphabet and its place.",
        {
            "type": "array",
            "prefixItems": [{"type": "string", "pattern": "^[A-Z]$"}, _integer(1, 26)],
            "items": False,
            "minItems": 2,
        },
    ),
    "list of objects": ("Name two people and their ages.", _list(_PERSON, 1, 2)),
    "nested objects": (
        "Where is the Eiffel Tower?",
        _closed(place=_closed(name=_text(20), address=_closed(city=_text(20), country={"enum": ["France", "Italy"]}))),
    ),
    "optional properties": (
        "Describe a cat by its name and perhaps its colour.",
        _closed(["name"], name=_text(12), colour=_text(12), age=_integer(0, 30)),
    ),
    "map": (
        "How many apples and pears are there? Two apples, three pears.",
        {"type": "object", "additionalProperties": _integer(0, 99), "maxProperties": 3},
    ),
    "named keys": (
        "Say yes or no to each of these options: x_one, x_two.",
        {
            "type": "object",
            "patternProperties": {"^x_[a-z]{2,5}$": {"type": "boolean"}},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 2,
        },
    ),
    "union of types": ("How many days has a week?", _closed(days={"anyOf": [_integer(1, 31), _text(10)]})),
    "tagged union": (
        "Describe a circle of radius 3.",
        {
            "oneOf": [
                _closed(kind={"const": "circle"}, radius=_integer(1, 50)),
                _closed(kind={"const": "square"}, side=_integer(1, 50)),
            ]
        },
    ),
    "all of": (
        "Who is in charge, and since which year?",
        {
            "allOf": [
                {"type": "object", "properties": {"name": _text(20)}, "required": ["name"]},
                {"properties": {"year": _integer(1900, 2100)}, "required": ["year"]},
            ],
            "additionalProperties": False,
            "properties": {"name": True, "year": True},
        },
    ),
    "tree": ("Draw a family tree with one parent called Ann and one child.", _TREE),
    "expression": ("Write one plus two as an expression.", _EXPRESSION),
}
