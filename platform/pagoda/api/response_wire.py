"""What POST /v1/responses answers, as structs: the shapes of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from pagoda.api.wire import TokenLogprob

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class InputTokensDetails(Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponseUsage(Struct, frozen=True):
    """Tokens, as the engine counted them and the ledger has them."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class OutputText(Struct, frozen=True):
    text: str
    annotations: list[Any] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    type: Literal["output_text"] = "output_text"


class OutputMessage(Struct, frozen=True):
    id: str
    status: Status
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"
    type: Literal["message"] = "message"


class IncompleteDetails(Struct, frozen=True):
    reason: Literal["max_output_tokens"]


class ResponseError(Struct, frozen=True):
    code: str
    message: str


class TextFormatOptions(Struct, frozen=True):
    format: dict[str, Any]


class Response(Struct, frozen=True):
    """One response. What its request said about it is given back; nothing of it is stored."""

    id: str
    created_at: int
    model: str
    status: Status
    output: list[OutputMessage]
    text: TextFormatOptions
    temperature: float
    top_p: float
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    object: Literal["response"] = "response"
    parallel_tool_calls: bool = True
    previous_response_id: None = None
    store: bool = False
    background: bool = False
    tool_choice: Literal["none", "auto"] = "auto"
    tools: list[Any] = field(default_factory=list)
    top_logprobs: int = 0
    truncation: Literal["disabled"] = "disabled"
    user: str | None = None


class ResponseEvent(Struct, frozen=True):
    """``response.created``, ``.in_progress``, ``.completed``, ``.incomplete`` and ``.failed``."""

    type: str
    sequence_number: int
    response: Response


class ItemEvent(Struct, frozen=True):
    """``response.output_item.added`` and ``.done``."""

    type: str
    sequence_number: int
    item: OutputMessage
    output_index: int = 0


class PartEvent(Struct, frozen=True):
    """``response.content_part.added`` and ``.done``."""

    type: str
    sequence_number: int
    item_id: str
    part: OutputText
    output_index: int = 0
    content_index: int = 0


class TextDelta(Struct, frozen=True):
    sequence_number: int
    item_id: str
    delta: str
    logprobs: list[TokenLogprob]
    output_index: int = 0
    content_index: int = 0
    type: Literal["response.output_text.delta"] = "response.output_text.delta"


class TextDone(Struct, frozen=True):
    sequence_number: int
    item_id: str
    text: str
    logprobs: list[TokenLogprob]
    output_index: int = 0
    content_index: int = 0
    type: Literal["response.output_text.done"] = "response.output_text.done"
