"""POST /v1/tokenize, /v1/detokenize and /v1/embeddings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pagoda.api.requests.chat import MAX_MESSAGES, Message
from pagoda.api.requests.completions import TokenIds
from pagoda.api.requests.fields import Body, ShortText


class TokenizeRequest(Body):
    """Extension. Exactly one of ``prompt`` (a text as it is) and ``messages`` (in the model's template)."""

    model: ShortText
    prompt: str | None = None
    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)] | None = None


class DetokenizeRequest(Body):
    """Extension."""

    model: ShortText
    tokens: TokenIds


class EmbeddingRequest(Body):
    """What clients ask for embeddings with. No model here gives any."""

    model: ShortText
    input: Any
    dimensions: int | None = None
    encoding_format: ShortText | None = None
    user: ShortText | None = None
