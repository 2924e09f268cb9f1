"""Functions that a model may call, in requests and in the messages of a conversation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from pagoda.api.requests.fields import Body, ShortText

FunctionName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


class FunctionDefinition(Body):
    """``parameters``: a JSON schema of the arguments; without one, there are none."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: FunctionDefinition


class CalledFunction(Body):
    name: FunctionName
    arguments: str


class EarlierToolCall(Body):
    """A function that an earlier answer called."""

    id: ShortText
    type: Literal["function"]
    function: CalledFunction


class NamedFunction(Body):
    name: FunctionName


class NamedTool(Body):
    type: Literal["function"]
    function: NamedFunction


def _word_or_object(value: Any) -> str | None:
    if isinstance(value, dict):
        return "object"
    return "word" if value in ("none", "auto", "required") else None


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")] | Annotated[NamedTool, Tag("object")],
    Discriminator(
        _word_or_object,
        custom_error_type="word_or_object",
        custom_error_message="Input should be 'none', 'auto', 'required' or an object that names a function",
    ),
]
