"""POST /v1/responses: OpenAI's Responses API for texts, without anything that would have to be stored."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import msgspec
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Router

from pagoda.api import answers, prompts, running, served_models, tokenizing
from pagoda.api.authentication import scoped
from pagoda.api.errors import ApiError
from pagoda.api.event_stream import Failed, Last, named_event
from pagoda.api.replies import answered
from pagoda.api.requests.fields import SamplingFields
from pagoda.api.requests.responses import InputMessage, ResponseRequest
from pagoda.api.response_format import response_grammar
from pagoda.api.response_wire import (
    IncompleteDetails,
    InputTokensDetails,
    ItemEvent,
    OutputMessage,
    OutputText,
    OutputTokensDetails,
    PartEvent,
    Response,
    ResponseError,
    ResponseEvent,
    ResponseUsage,
    Status,
    TextDelta,
    TextDone,
    TextFormatOptions,
)
from pagoda.api.running import Running
from pagoda.api.sampling import DEFAULT_TEMPERATURE, sampling_of
from pagoda.api.token_texts import TokenTexts
from pagoda.api.wire import TokenLogprob
from pagoda.generations.calls import Ask, Order
from pagoda.generations.models import Generation
from pagoda.tenants.models import ApiKey
from pagoda_inference.protocol import ChatMessage, RequestClass, TokenLogprobs

router = Router(tags=["Responses"])

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Asked:
    """A request made ready. blank: the response before anything of it is there."""

    order: Order
    ask: Ask
    blank: Response
    item_id: str
    logprobs: bool


@router.post("/responses", auth=scoped("chat"), summary="Create a response")
async def create_response(request: HttpRequest, body: ResponseRequest) -> HttpResponseBase:
    """An answer to a text or a conversation, or with ``stream`` the events of its making."""
    return await answered(request, body, prepare=prepare, begin=begin, whole=collect, streamed=events)


async def prepare(
    body: ResponseRequest,
    key: ApiKey,
    *,
    purpose: str = Generation.Purpose.API,
    request_class: RequestClass = "api",
) -> Asked:
    """Check the request and tokenise its conversation. Raises ApiError."""
    model = served_models.find_model(body.model)
    turns = _turns(body)
    tokenizing.check_turns(turns, model, "input")
    affinity = f"{key.tenant_id}:{body.prompt_cache_key or body.user or prompts.opening_of(turns)}"
    address = served_models.choose_engine(model, affinity)
    logprobs = bool(body.include) or bool(body.top_logprobs)
    sampling = sampling_of(
        SamplingFields.model_validate({"temperature": body.temperature, "top_p": body.top_p}),
        body.max_output_tokens,
        logprobs=(body.top_logprobs or 0) if logprobs else None,
        grammar=response_grammar(body.text),
        vocabulary_size=model.vocabulary_size,
    )
    prompt = await tokenizing.prompt_of_turns(address, turns, model, "input")
    wanted: dict[str, Any] = {"type": "text"}
    if body.text is not None and body.text.format is not None:
        wanted = body.text.format.model_dump(exclude_none=True, by_alias=True)
    blank = Response(
        id=f"resp_{uuid.uuid4().hex}",
        created_at=int(time.time()),
        model=model.id,
        status="in_progress",
        output=[],
        text=TextFormatOptions(wanted),
        temperature=DEFAULT_TEMPERATURE if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        tool_choice=body.tool_choice or "auto",
        parallel_tool_calls=body.parallel_tool_calls is not False,
        top_logprobs=body.top_logprobs or 0,
        user=body.user,
    )
    order = Order(key, address, model, purpose, request_class)
    return Asked(order, Ask(prompt, sampling), blank, f"msg_{uuid.uuid4().hex}", logprobs)


async def begin(asked: Asked) -> Running:
    """Hold what it may use, and have the engine begin it. Raises ApiError."""
    return await running.begin(asked.order, [asked.ask], 1, prompt_param="input", grammar_param="text.format.schema")


async def collect(asked: Asked, calls: Running) -> Response:
    """The whole response. Raises ApiError."""
    (answer,) = await answers.whole(calls)
    logprobs = await _logprobs(asked, answer.logprobs)
    return _ended(asked, calls, answer.text, logprobs, answer.finish)


async def events(asked: Asked, calls: Running) -> AsyncGenerator[bytes, None]:
    """The events of a response, numbered from 0. A failure is the last of them, as ``response.failed``."""
    number = -1

    def numbered(kind: type[msgspec.Struct], **fields: Any) -> bytes:
        nonlocal number
        number += 1
        told = kind(sequence_number=number, **fields)
        return named_event(told.type, _encode(told))  # type: ignore[attr-defined]

    said: list[str] = []
    logprobs: list[TokenLogprob] = []
    finish = "stop"
    item = OutputMessage(asked.item_id, "in_progress", [])
    async with calls:
        yield numbered(ResponseEvent, type="response.created", response=asked.blank)
        yield numbered(ResponseEvent, type="response.in_progress", response=asked.blank)
        yield numbered(ItemEvent, type="response.output_item.added", item=item)
        yield numbered(PartEvent, type="response.content_part.added", item_id=item.id, part=OutputText(""))
        try:
            async for piece in calls.pieces():
                new = await _logprobs(asked, piece.delta.logprobs if piece.delta else ())
                if piece.text or new:
                    said.append(piece.text)
                    logprobs += new
                    yield numbered(TextDelta, item_id=item.id, delta=piece.text, logprobs=new)
                finish = piece.finish or finish
        except ApiError as error:
            detail = error.body.error
            failed = msgspec.structs.replace(
                asked.blank, status="failed", error=ResponseError(detail.code, detail.message)
            )
            yield Failed(numbered(ResponseEvent, type="response.failed", response=failed))
            return
        ended = _ended(asked, calls, "".join(said), logprobs, finish)
        part = ended.output[0].content[0]
        yield numbered(TextDone, item_id=item.id, text=part.text, logprobs=logprobs)
        yield numbered(PartEvent, type="response.content_part.done", item_id=item.id, part=part)
        yield numbered(ItemEvent, type="response.output_item.done", item=ended.output[0])
        yield Last(numbered(ResponseEvent, type=f"response.{ended.status}", response=ended))


def _ended(asked: Asked, calls: Running, text: str, logprobs: list[TokenLogprob], finish: str) -> Response:
    status: Status = "incomplete" if finish == "length" else "completed"
    return msgspec.structs.replace(
        asked.blank,
        status=status,
        output=[OutputMessage(asked.item_id, status, [OutputText(text, logprobs=logprobs)])],
        incomplete_details=IncompleteDetails("max_output_tokens") if finish == "length" else None,
        usage=ResponseUsage(
            input_tokens=calls.prompt_tokens,
            input_tokens_details=InputTokensDetails(calls.cached_tokens),
            output_tokens=calls.output_tokens,
            output_tokens_details=OutputTokensDetails(),
            total_tokens=calls.prompt_tokens + calls.output_tokens,
        ),
    )


async def _logprobs(asked: Asked, tokens: Any) -> list[TokenLogprob]:
    known: list[TokenLogprobs] = list(tokens)
    if not asked.logprobs or not known:
        return []
    texts = TokenTexts(asked.order)
    await texts.learn(known)
    return texts.of_chat(known).content or []


def _turns(body: ResponseRequest) -> tuple[ChatMessage, ...]:
    opening = (ChatMessage("system", body.instructions),) if body.instructions else ()
    if isinstance(body.input, str):
        return (*opening, ChatMessage("user", body.input))
    return (*opening, *(_turn(each) for each in body.input))


def _turn(message: InputMessage) -> ChatMessage:
    text = prompts.text_of(message.content)
    if message.role in ("system", "developer"):
        return ChatMessage("system", text)
    return ChatMessage("assistant" if message.role == "assistant" else "user", text)
