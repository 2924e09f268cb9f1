"""POST /v1/chat/completions: an answer to a conversation, whole or as it is written."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Router

from pagoda.api import chat_answers, prompts, running, served_models, tokenizing
from pagoda.api.authentication import scoped
from pagoda.api.chat_answers import Manner
from pagoda.api.errors import ApiError
from pagoda.api.replies import answered
from pagoda.api.requests.chat import ChatCompletionRequest, TextFormat
from pagoda.api.response_format import grammar_of
from pagoda.api.running import Running
from pagoda.api.sampling import sampling_of
from pagoda.api.tools import Functions, functions_of
from pagoda.generations.calls import Ask, Order
from pagoda.generations.models import Generation
from pagoda.tenants.models import ApiKey
from pagoda_inference.protocol import RequestClass, Sampling

router = Router(tags=["Chat"])


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request made ready: what is asked of the engine, and how its answer is told."""

    ask: Ask
    manner: Manner
    grammar_param: str


@router.post("/chat/completions", auth=scoped("chat"), summary="Create a chat completion")
async def create_chat_completion(request: HttpRequest, body: ChatCompletionRequest) -> HttpResponseBase:
    """An answer to a conversation, or with ``stream`` its pieces as they are written."""
    return await answered(
        request,
        body,
        prepare=prepare,
        begin=begin,
        whole=lambda conversation, calls: chat_answers.completion(conversation.manner, calls),
        streamed=lambda conversation, calls: chat_answers.chunks(conversation.manner, calls),
    )


async def prepare(
    body: ChatCompletionRequest,
    key: ApiKey,
    *,
    purpose: str = Generation.Purpose.API,
    request_class: RequestClass = "api",
) -> Conversation:
    """Check the request and tokenise its conversation. Raises ApiError."""
    model = served_models.find_model(body.model)
    functions = functions_of(body.tools, body.tool_choice, body.parallel_tool_calls)
    sampling = _sampling(body, functions, model.vocabulary_size)
    turns = prompts.turns_of(body.messages)
    told = turns if functions is None else functions.told(turns)
    tokenizing.check_turns(told, model, "messages")
    affinity = f"{key.tenant_id}:{body.prompt_cache_key or body.user or prompts.opening_of(turns)}"
    address = served_models.choose_engine(model, affinity)
    prompt = await tokenizing.prompt_of_turns(address, told, model, "messages")
    manner = Manner(
        order=Order(key, address, model, purpose, request_class),
        id=f"chatcmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        fingerprint=served_models.fingerprint(model),
        answers=sampling.n,
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        calls=functions is not None,
        logprobs=bool(body.logprobs),
    )
    form = "response_format.json_schema.schema"
    return Conversation(Ask(prompt, sampling), manner, functions.grammar_param if functions else form)


async def begin(conversation: Conversation) -> Running:
    """Hold what it may use, and have the engine begin it. Raises ApiError."""
    manner = conversation.manner
    return await running.begin(
        manner.order,
        [conversation.ask],
        manner.answers,
        prompt_param="messages",
        grammar_param=conversation.grammar_param,
    )


def _sampling(body: ChatCompletionRequest, functions: Functions | None, vocabulary_size: int) -> Sampling:
    if body.max_tokens and body.max_completion_tokens and body.max_tokens != body.max_completion_tokens:
        raise ApiError("invalid_value", "max_tokens is max_completion_tokens: give one of them.", "max_tokens")
    if body.top_logprobs and not body.logprobs:
        raise ApiError("invalid_value", "top_logprobs needs logprobs: true.", "top_logprobs")
    if functions is not None and body.response_format and not isinstance(body.response_format, TextFormat):
        raise ApiError("unsupported_value", "Functions and a format cannot be had together.", "response_format")
    grammar = functions.grammar() if functions is not None else grammar_of(body.response_format)
    if grammar is not None and body.ignore_eos:
        raise ApiError("invalid_value", "The grammar of the answer says where it ends.", "ignore_eos")
    return sampling_of(
        body,
        body.max_completion_tokens or body.max_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        grammar=grammar,
        vocabulary_size=vocabulary_size,
    )
