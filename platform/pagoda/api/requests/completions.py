"""POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from pagoda.api.requests.chat import NotOffered
from pagoda.api.requests.fields import MAX_ANSWERS, CommonFields

MAX_PROMPTS = 16
MAX_PROMPT_TOKENS = 1 << 20
MAX_LOGPROBS = 5
MAX_TOKENS = 16
"""Of an answer, where the request says nothing: as in OpenAI's API."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Annotated[list[TokenId], Field(fail_fast=True, min_length=1, max_length=MAX_PROMPT_TOKENS)]


def _kind_of_prompt(value: Any) -> str | None:
    if not isinstance(value, list):
        return "text" if isinstance(value, str) else None
    first = value[0] if value else ""
    if isinstance(first, list):
        return "token_lists"
    return "tokens" if isinstance(first, int) else "texts"


Prompt = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MAX_PROMPTS), Tag("texts")]
    | Annotated[TokenIds, Tag("tokens")]
    | Annotated[list[TokenIds], Field(fail_fast=True, min_length=1, max_length=MAX_PROMPTS), Tag("token_lists")],
    Discriminator(
        _kind_of_prompt,
        custom_error_type="kind_of_prompt",
        custom_error_message="Input should be a string, token ids, or a list of either",
    ),
]


class CompletionRequest(CommonFields):
    """A text, or several, to be continued."""

    prompt: Prompt
    max_tokens: int | None = Field(None, ge=1, description="Tokens of an answer. Default 16.")
    best_of: int | None = Field(None, ge=1, le=MAX_ANSWERS, description="Write so many, return the n most probable.")
    echo: bool | None = Field(None, description="Begin the answer with the prompt.")
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    suffix: NotOffered = None
