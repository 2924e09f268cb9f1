"""Functions that the model may call: told to it in words, held to by a grammar, read back from its answer.

An answer that calls is one JSON object per line, {"name": ..., "arguments": {...}}, in this order: the name is known
before the arguments begin, so that both can be streamed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pagoda.api.errors import ApiError
from pagoda.api.requests.tools import NamedTool, Tool
from pagoda.api.schema_size import MAX_SCHEMA_BYTES, check_schemas
from pagoda_inference.protocol import ChatMessage, Grammar

MAX_CALLS = 8
"""Functions called in one answer."""
MAX_SCHEMA_DEPTH = 64

_TOO_LARGE = f"All functions together may have {MAX_SCHEMA_BYTES} bytes."
_BEGIN = re.compile(r'\s*\{\s*"name"\s*:\s*"([A-Za-z0-9_-]{1,64})"\s*,\s*"arguments"\s*:\s*(?=\{)')


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of one request. choice: ``auto``, ``required``, or a function's name, quoted as it is."""

    tools: tuple[Tool, ...]
    choice: str
    named: str | None = None
    parallel: bool = True

    def told(self, turns: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        """The turns, with the functions explained to the model in the first of them."""
        text = self._explanation()
        if turns and turns[0].role == "system":
            return (ChatMessage("system", f"{turns[0].content}\n\n{text}"), *turns[1:])
        return (ChatMessage("system", text), *turns)

    def grammar(self) -> Grammar:
        """What answers are possible. Raises ApiError: the schemas are too large."""
        schema = json.dumps(self._schema(), ensure_ascii=False)
        most = MAX_CALLS - 1 if self.parallel and self.named is None else 0
        calls = f"call (NEWLINE call){{0,{most}}}" if most else "call"
        start = calls if self.choice != "auto" else f"{calls} | text"
        rules = [f"start: {start}", "NEWLINE: /\\n/", "text: /[^\\s{](?s:.*)/", f"call: %json {schema}"]
        grammar = Grammar("lark", "\n".join(rules))
        if len(grammar.source.encode()) > MAX_SCHEMA_BYTES:
            raise ApiError("invalid_value", _TOO_LARGE, "tools")
        return grammar

    @property
    def grammar_param(self) -> str:
        """The field that the grammar comes from; ``[*]`` where it comes from all tools."""
        callable_ones = self._callable()
        number = self.tools.index(callable_ones[0]) if len(callable_ones) == 1 else "*"
        return f"tools[{number}].function.parameters"

    def _callable(self) -> list[Tool]:
        return [tool for tool in self.tools if self.named in (None, tool.function.name)]

    def _schema(self) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        kinds = [_call_schema(tool, f"f{number}_", definitions) for number, tool in enumerate(self._callable())]
        schema: dict[str, Any] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        return schema | ({"$defs": definitions} if definitions else {})

    def _explanation(self) -> str:
        functions = "\n".join(
            json.dumps(tool.function.model_dump(exclude_none=True, exclude={"strict"}), ensure_ascii=False)
            for tool in self._callable()
        )
        form = 'a JSON object of the form {"name": "a function\'s name", "arguments": {its arguments}} and nothing else'
        if self.parallel:
            form += ", one per line where several are called"
        rule = f"To call a function, answer with {form}."
        if self.choice == "auto":
            rule += " Where no function helps, answer in plain text."
        else:
            rule += " Your next answer must call a function."
        return f"You can call these functions:\n{functions}\n{rule}"


def functions_of(
    tools: Sequence[Tool] | None, choice: str | NamedTool | None, parallel: bool | None
) -> Functions | None:
    """The functions that the answer may call; None: it may call none. Raises ApiError."""
    check_schemas([tool.function.parameters for tool in tools or ()], _TOO_LARGE, "tools")
    names = [tool.function.name for tool in tools or ()]
    if len(set(names)) < len(names):
        raise ApiError("invalid_value", "Two functions have the same name.", "tools")
    if isinstance(choice, NamedTool):
        if choice.function.name not in names:
            raise ApiError("invalid_value", "There is no such function among the tools.", "tool_choice")
        return Functions(tuple(tools or ()), "required", choice.function.name, False)
    if not tools:
        if choice == "required":
            raise ApiError("invalid_value", "There are no tools to choose from.", "tool_choice")
        return None
    if choice == "none":
        return None
    return Functions(tuple(tools), choice or "auto", None, parallel is not False)


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The model calls a function: the answer's call number ``index``."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments' JSON of call ``index``."""

    index: int
    text: str


class AnswerReader:
    """Takes an answer apart as it is written: text, or functions that are called.

    ``read`` returns what is new: texts (str), CallBegun and CallArguments. calls: how many have begun. What looks like
    the beginning of a call and never becomes one (a stop text or a limit ended the answer) is not told at all: it is
    the form that calls are written in, and never a text.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._waiting = ""
        self._is_text = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._behind_arguments = False

    def read(self, text: str) -> list[str | CallBegun | CallArguments]:
        found: list[str | CallBegun | CallArguments] = []
        while text:
            if self._is_text:
                found.append(text)
                return found
            text = self._read_arguments(text, found) if self._depth else self._read_beginning(text, found)
        return found

    @property
    def in_a_call(self) -> bool:
        """So far the answer ends within a call, whose JSON is not whole."""
        return bool(self._depth or self._behind_arguments or (not self._is_text and self._waiting.strip()))

    def _read_beginning(self, text: str, found: list[str | CallBegun | CallArguments]) -> str:
        self._waiting += text
        if self._behind_arguments:
            closing = self._waiting.find("}")
            if closing < 0:
                return ""
            self._waiting = self._waiting[closing + 1 :]
            self._behind_arguments = False
        start = self._waiting.lstrip()
        if start and not start.startswith("{") and not self.calls:
            self._is_text = True
            rest, self._waiting = self._waiting, ""
            return rest
        begin = _BEGIN.match(self._waiting)
        if begin is None:
            return ""
        found.append(CallBegun(self.calls, f"call_{uuid.uuid4().hex[:24]}", begin[1]))
        self.calls += 1
        rest, self._waiting = self._waiting[begin.end() + 1 :], ""
        self._depth = 1
        found.append(CallArguments(self.calls - 1, "{"))
        return rest

    def _read_arguments(self, text: str, found: list[str | CallBegun | CallArguments]) -> str:
        for place, character in enumerate(text):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character == "{":
                self._depth += 1
            elif character == "}":
                self._depth -= 1
                if not self._depth:
                    found.append(CallArguments(self.calls - 1, text[: place + 1]))
                    self._behind_arguments = True
                    return text[place + 1 :]
        found.append(CallArguments(self.calls - 1, text))
        return ""


def _call_schema(tool: Tool, prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    parameters = tool.function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}
    if parameters.get("type", "object") != "object":
        raise ApiError("invalid_value", "The parameters of a function must be a JSON schema of an object.", "tools")
    own = {name: part for name, part in parameters.items() if name not in ("$defs", "definitions")}
    for place in ("$defs", "definitions"):
        parts = parameters.get(place)
        if isinstance(parts, dict):
            definitions |= {f"{prefix}{name}": _renamed(part, prefix) for name, part in parts.items()}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.function.name}, "arguments": _renamed(own, prefix) | {"type": "object"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _renamed(schema: Any, prefix: str, depth: int = 0) -> Any:
    """A part of a schema whose references lead to the definitions' new place."""
    if depth > MAX_SCHEMA_DEPTH:
        raise ApiError("invalid_value", "The parameters of a function are nested too deeply.", "tools")
    if isinstance(schema, list):
        return [_renamed(each, prefix, depth + 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {name: _renamed(part, prefix, depth + 1) for name, part in schema.items()}
    reference = renamed.get("$ref")
    if isinstance(reference, str):
        renamed["$ref"] = re.sub(r"^#/(?:\$defs|definitions)/", f"#/$defs/{prefix}", reference)
    return renamed
