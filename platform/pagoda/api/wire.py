"""What the API answers, as structs: the shapes that OpenAI's clients read, encoded by msgspec."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

ChatFinish = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(Struct, frozen=True):
    """``cached_tokens``: of the prompt, found in the prefix cache."""

    cached_tokens: int
    audio_tokens: int = 0


class CompletionTokensDetails(Struct, frozen=True):
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class KvLimit(Struct, frozen=True):
    """The memory that a tenant can have at most, in KV blocks, and the tokens of a block."""

    limit_blocks: int
    block_size: int


class Usage(Struct, frozen=True):
    """Tokens, as the engine counted them and the ledger has them. ``kv_limit``: where that ended the answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()
    kv_limit: KvLimit | UnsetType = UNSET


class TopLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(Struct, frozen=True):
    content: list[TokenLogprob] | None
    refusal: None = None


class FunctionCall(Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(Struct, frozen=True):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class ChatMessage(Struct, frozen=True):
    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(Struct, frozen=True):
    index: int
    message: ChatMessage
    finish_reason: ChatFinish
    logprobs: ChoiceLogprobs | None = None


class ChatCompletion(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    system_fingerprint: str | None = None


class FunctionCallDelta(Struct, frozen=True, omit_defaults=True):
    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(Struct, frozen=True, omit_defaults=True):
    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionCallDelta | None = None


class ChatDelta(Struct, frozen=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(Struct, frozen=True):
    index: int
    delta: ChatDelta
    finish_reason: ChatFinish | None = None
    logprobs: ChoiceLogprobs | None = None


class ChatChunk(Struct, frozen=True):
    """``usage``: null on all chunks but the last where it was asked for, absent where it was not."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    system_fingerprint: str | None = None
    usage: Usage | UnsetType | None = UNSET


class CompletionLogprobs(Struct, frozen=True):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class CompletionChoice(Struct, frozen=True):
    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None
    logprobs: CompletionLogprobs | None = None


class Completion(Struct, frozen=True):
    """Of a stream too, where ``usage`` is as in ChatChunk."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    object: Literal["text_completion"] = "text_completion"
    system_fingerprint: str | None = None
    usage: Usage | UnsetType | None = UNSET


class Model(Struct, frozen=True):
    """``context_length``: an extension, tokens of prompt and answer together."""

    id: str
    created: int
    context_length: int
    object: Literal["model"] = "model"
    owned_by: str = "pagoda"


class ModelList(Struct, frozen=True):
    data: list[Model]
    object: Literal["list"] = "list"


class TokenizeResult(Struct, frozen=True):
    """``max_model_len``: the model's context."""

    count: int
    max_model_len: int
    tokens: list[int]


class DetokenizeResult(Struct, frozen=True):
    prompt: str
