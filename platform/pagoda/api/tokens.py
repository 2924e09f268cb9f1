"""POST /v1/tokenize and /v1/detokenize: extensions, with the fields that vLLM has."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from pagoda.api import prompts, served_models, tokenizing
from pagoda.api.authentication import scoped
from pagoda.api.errors import ApiError, json_response
from pagoda.api.requests.tokens import DetokenizeRequest, TokenizeRequest
from pagoda.api.wire import DetokenizeResult, TokenizeResult
from pagoda_inference.protocol import ModelInfo

router = Router(tags=["Tokens"])


@router.post("/tokenize", auth=scoped("chat"), summary="Tokenize a text or a conversation")
async def tokenize(request: HttpRequest, body: TokenizeRequest) -> HttpResponse:
    """The tokens that the model would read."""
    model, address = _at_hand(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError("invalid_value", "Give one of prompt and messages.", "prompt")
    if body.messages is not None:
        turns = prompts.turns_of(body.messages)
        tokenizing.check_turns(turns, model, "messages")
        tokens = await tokenizing.tokens_of_turns(address, turns)
    else:
        text = body.prompt or ""
        tokenizing.check_characters(len(text), model, "prompt")
        tokens = await tokenizing.tokens_of_text(address, text)
    return json_response(TokenizeResult(len(tokens), model.context_length, list(tokens)))


@router.post("/detokenize", auth=scoped("chat"), summary="The text of tokens")
async def detokenize(request: HttpRequest, body: DetokenizeRequest) -> HttpResponse:
    """The text that the tokens stand for."""
    model, address = _at_hand(body.model)
    if max(body.tokens) >= model.vocabulary_size:
        raise ApiError("invalid_value", f"Token ids must be in 0..{model.vocabulary_size - 1}.", "tokens")
    return json_response(DetokenizeResult(await tokenizing.text_of_tokens(address, tuple(body.tokens))))


def _at_hand(name: str) -> tuple[ModelInfo, str]:
    model = served_models.find_model(name)
    return model, served_models.choose_engine(model, name)
