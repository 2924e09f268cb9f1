"""Fields that several requests have: how tokens are chosen, what is streamed, and what is taken without an effect."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

MAX_ANSWERS = 64
MAX_STOPS = 4
MAX_STOP_CHARACTERS = 1024
MAX_BIASES = 1024
MAX_TOP_LOGPROBS = 20
MAX_NAME = 512
INT64 = 2**63

Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
ShortText = Annotated[str, Field(max_length=MAX_NAME)]


def _text_or_list(value: Any) -> str | None:
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) else None


TEXT_OR_LIST = Discriminator(
    _text_or_list, custom_error_type="text_or_list", custom_error_message="Input should be a string or a list"
)
"""Of branches tagged ``text`` and ``list``: errors are then about the one that was meant."""


StopStrings = Annotated[
    Annotated[Stop, Tag("text")] | Annotated[list[Stop], Field(fail_fast=True, max_length=MAX_STOPS), Tag("list")],
    TEXT_OR_LIST,
]


class Body(BaseModel):
    """An object of a request: types as JSON has them, and no fields but those described."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class StreamOptions(Body):
    """``include_usage``: a last chunk without choices tells the tokens used."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = Field(None, description="Taken, without effect.")


class SamplingFields(Body):
    """How tokens are chosen. The defaults are those of OpenAI's API; those marked so are extensions."""

    n: int | None = Field(None, ge=1, le=MAX_ANSWERS, description="Answers to one prompt.")
    temperature: float | None = Field(None, ge=0, le=2, description="0: always the most probable token. Default 1.")
    top_p: float | None = Field(None, ge=0, le=1, description="Only the most probable tokens that make up this much.")
    seed: int | None = Field(None, ge=-INT64, lt=INT64, description="The same seed gives the same answer.")
    stop: StopStrings | None = Field(None, description="Up to 4 texts that end the answer; they are not part of it.")
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, max_length=MAX_BIASES, description="Token id -> what is added to its logit."
    )
    top_k: int | None = Field(None, ge=-1, lt=INT64, description="Extension: only the k most probable; 0, -1: all.")
    min_p: float | None = Field(None, ge=0, le=1, description="Extension: only tokens with this share of the best's.")
    repetition_penalty: float | None = Field(None, gt=0, le=10, description="Extension: above 1 discourages repeats.")
    ignore_eos: bool | None = Field(None, description="Extension: go on to the token limit.")
    beam_width: int | None = Field(None, ge=0, le=16, description="Extension: search with so many beams; 0: sample.")
    length_penalty: float | None = Field(None, ge=-5, le=5, description="Extension: of beam search.")
    early_stopping: bool | Literal["never"] | None = Field(None, description="Extension: of beam search.")


class CommonFields(SamplingFields):
    """What chat and text completions share besides."""

    model: ShortText
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: ShortText | None = Field(None, description="Taken, without effect but for which engine's cache is used.")
