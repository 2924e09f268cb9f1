"""POST /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from pagoda.api.requests.chat import MAX_MESSAGES, MAX_PARTS, NotOffered
from pagoda.api.requests.fields import MAX_TOP_LOGPROBS, TEXT_OR_LIST, Body, ShortText


class InputText(Body):
    type: Literal["input_text"]
    text: str


class EarlierText(Body):
    """A text of an earlier response, as it was answered."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


Parts = Annotated[list[Annotated[InputText | EarlierText, Discriminator("type")]], Field(max_length=MAX_PARTS)]
Content = Annotated[Annotated[str, Tag("text")] | Annotated[Parts, Tag("list")], TEXT_OR_LIST]


class InputMessage(Body):
    """A turn: a question, an instruction, or an earlier answer as it was given."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: ShortText | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    phase: ShortText | None = None


Items = Annotated[list[InputMessage], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
Input = Annotated[Annotated[str, Tag("text")] | Annotated[Items, Tag("list")], TEXT_OR_LIST]


class TextForm(Body):
    type: Literal["text"]


class JsonObjectForm(Body):
    type: Literal["json_object"]


class JsonSchemaForm(Body):
    type: Literal["json_schema"]
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextOptions(Body):
    format: Annotated[TextForm | JsonObjectForm | JsonSchemaForm, Discriminator("type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = Field(None, description="Taken, without effect.")


class ResponseStreamOptions(Body):
    include_obfuscation: bool | None = Field(None, description="Taken, without effect.")


class ResponseRequest(Body):
    """A text or a conversation to be answered. Nothing of it is stored."""

    model: ShortText
    input: Input
    instructions: str | None = Field(None, description="What the model is told first.")
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    include: Annotated[list[Literal["message.output_text.logprobs"]], Field(fail_fast=True, max_length=1)] | None = None
    text: TextOptions | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    store: bool | None = Field(None, description="Taken, without effect: nothing is stored, as with false.")
    metadata: Annotated[dict[ShortText, ShortText], Field(max_length=16)] | None = Field(
        None, description="Given back."
    )
    user: ShortText | None = Field(None, description="Taken, without effect but for which engine's cache is used.")
    prompt_cache_key: ShortText | None = Field(None, description="Calls with the same one go to the same engine.")
    prompt_cache_retention: Literal["in_memory", "24h"] | None = Field(None, description="Taken, without effect.")
    safety_identifier: ShortText | None = Field(None, description="Taken, without effect.")
    service_tier: Literal["auto", "default"] | None = Field(None, description="Taken, without effect.")
    truncation: Literal["disabled"] | None = Field(None, description="Prompts are never cut.")
    parallel_tool_calls: bool | None = Field(None, description="Taken, without effect.")
    tool_choice: Literal["none", "auto"] | None = Field(None, description="Taken, without effect.")
    tools: Annotated[list[Any], Field(max_length=0)] | None = Field(None, description="Not offered here: see chat.")
    background: Literal[False] | None = Field(None, description="Not offered: true is refused.")
    previous_response_id: NotOffered = None
    conversation: NotOffered = None
    prompt: NotOffered = None
    reasoning: NotOffered = None
    max_tool_calls: NotOffered = None
    moderation: NotOffered = None
