"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from pagoda.api.requests.fields import MAX_TOP_LOGPROBS, TEXT_OR_LIST, Body, CommonFields, ShortText
from pagoda.api.requests.tools import EarlierToolCall, Tool, ToolChoice

MAX_MESSAGES = 10_000
MAX_PARTS = 1_000
MAX_TOOLS = 128

NotOffered = Annotated[None, Field(description="Not offered: anything but null is refused.")]


class TextPart(Body):
    """A part of a message. Images, sound and files are not offered."""

    type: Literal["text"]
    text: str


class RefusalPart(Body):
    """A part of an assistant's earlier message; read as its text."""

    type: Literal["refusal"]
    refusal: str


Parts = Annotated[list[TextPart], Field(fail_fast=True, max_length=MAX_PARTS)]
AnswerPart = Annotated[TextPart | RefusalPart, Discriminator("type")]
AnswerParts = Annotated[list[AnswerPart], Field(fail_fast=True, max_length=MAX_PARTS)]
Content = Annotated[Annotated[str, Tag("text")] | Annotated[Parts, Tag("list")], TEXT_OR_LIST]
AnswerContent = Annotated[Annotated[str, Tag("text")] | Annotated[AnswerParts, Tag("list")], TEXT_OR_LIST]


class SystemMessage(Body):
    """What the model is told first. ``developer`` is another name for ``system``."""

    role: Literal["system", "developer"]
    content: Content
    name: ShortText | None = None


class UserMessage(Body):
    role: Literal["user"]
    content: Content
    name: ShortText | None = None


class AssistantMessage(Body):
    """An earlier answer: its text, the functions it called, or both."""

    role: Literal["assistant"]
    content: AnswerContent | None = None
    name: ShortText | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[EarlierToolCall], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    audio: NotOffered = None
    function_call: NotOffered = None


class ToolMessage(Body):
    """What a function that an earlier answer called has returned."""

    role: Literal["tool"]
    content: Content
    tool_call_id: ShortText


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Discriminator("role")]


class JsonSchema(Body):
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextFormat(Body):
    type: Literal["text"]


class JsonObjectFormat(Body):
    type: Literal["json_object"]


class JsonSchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Discriminator("type")]


class ChatCompletionRequest(CommonFields):
    """A conversation to be answered."""

    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: int | None = Field(
        None, ge=1, description="Tokens of an answer. Default: the context's end."
    )
    max_tokens: int | None = Field(None, ge=1, description="The old name of max_completion_tokens.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = Field(None, description="false: one function per answer at most.")
    metadata: Annotated[dict[ShortText, ShortText], Field(max_length=16)] | None = Field(
        None, description="Taken, without effect: nothing of a call is stored."
    )
    store: bool | None = Field(None, description="Taken, without effect: nothing of a call is stored.")
    service_tier: Literal["auto", "default"] | None = Field(None, description="Taken, without effect.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="Taken, without effect."
    )
    verbosity: Literal["low", "medium", "high"] | None = Field(None, description="Taken, without effect.")
    safety_identifier: ShortText | None = Field(None, description="Taken, without effect.")
    prompt_cache_key: ShortText | None = Field(None, description="Calls with the same one go to the same engine.")
    prompt_cache_retention: Literal["in_memory", "24h"] | None = Field(None, description="Taken, without effect.")
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True, max_length=2)] | None = None
    audio: NotOffered = None
    function_call: NotOffered = None
    functions: NotOffered = None
    moderation: NotOffered = None
    prediction: NotOffered = None
    web_search_options: NotOffered = None
