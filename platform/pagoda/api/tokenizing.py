"""Tokens of texts and conversations, by the engine that will read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pagoda.api.engine_errors import refused, unavailable
from pagoda.api.errors import ApiError
from pagoda.engines import connections
from pagoda_inference.client import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import ChatMessage, ModelInfo


async def prompt_of_turns(
    address: str, turns: tuple[ChatMessage, ...], model: ModelInfo, param: str
) -> tuple[int, ...]:
    """Tokens of a conversation that leaves room for an answer. param: the field it comes from. Raises ApiError."""
    prompt = await tokens_of_turns(address, turns, param)
    check_length(prompt, model, param)
    return prompt


async def tokens_of_turns(address: str, turns: tuple[ChatMessage, ...], param: str = "messages") -> tuple[int, ...]:
    """Tokens of a conversation in the model's template. param: the field it comes from. Raises ApiError."""
    with _api_errors(param):
        client = await connections.get_client(address)
        return (await client.tokenize(messages=turns)).token_ids


async def tokens_of_text(address: str, text: str) -> tuple[int, ...]:
    """Tokens of a text as it is. Raises ApiError."""
    with _api_errors():
        client = await connections.get_client(address)
        return (await client.tokenize(text=text)).token_ids


async def text_of_tokens(address: str, token_ids: tuple[int, ...]) -> str:
    """The text of tokens. Raises ApiError."""
    with _api_errors():
        client = await connections.get_client(address)
        return (await client.detokenize(token_ids)).text


@contextmanager
def _api_errors(param: str | None = None) -> Iterator[None]:
    """What an engine says, as ApiError. param: the field that is wrong where it finds the request wrong."""
    try:
        yield
    except EngineRefused as error:
        found = refused(error.error)
        if param is not None and found.status == 400:
            raise ApiError("invalid_value", found.body.error.message, param) from None
        raise found from None
    except EngineUnavailable:
        raise unavailable() from None


def check_turns(turns: Iterable[ChatMessage], model: ModelInfo, param: str) -> None:
    """``check_characters`` of all that a conversation says."""
    check_characters(sum(len(turn.content) for turn in turns), model, param)


def check_characters(characters: int, model: ModelInfo, param: str) -> None:
    """Raises ApiError(context_length_exceeded) for a text so long that no tokens could say it within the context.

    Without it a text of megabytes would be tokenised, for seconds, only to be refused.
    """
    most = model.context_length * model.longest_token
    if characters > most:
        raise ApiError(
            "context_length_exceeded",
            f"This model's context has {model.context_length} tokens of {model.longest_token} characters at most "
            f"({most} together), and the prompt has {characters} characters: shorten it.",
            param,
        )


def check_length(prompt: tuple[int, ...], model: ModelInfo, param: str) -> None:
    """Raises ApiError(context_length_exceeded) with the numbers: no room for a token after the prompt."""
    if not prompt:
        raise ApiError("invalid_value", "The prompt has no tokens.", param)
    if len(prompt) >= model.context_length:
        raise ApiError(
            "context_length_exceeded",
            f"This model's context has {model.context_length} tokens, and the prompt {len(prompt)}: shorten it.",
            param,
        )
