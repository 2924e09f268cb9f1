"""POST /v1/completions: a text continued, without a chat template."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

import msgspec
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Router

from pagoda.api import answers, running, served_models, tokenizing, usage
from pagoda.api.authentication import scoped
from pagoda.api.errors import ApiError
from pagoda.api.event_stream import DONE, event
from pagoda.api.replies import answered
from pagoda.api.requests.completions import MAX_TOKENS, CompletionRequest
from pagoda.api.running import Running
from pagoda.api.sampling import sampling_of
from pagoda.api.token_texts import Offsets, TokenTexts
from pagoda.api.wire import Completion, CompletionChoice
from pagoda.generations.calls import Ask, Order
from pagoda.generations.models import Generation
from pagoda.tenants.models import ApiKey
from pagoda_inference.protocol import RequestClass, Sampling

router = Router(tags=["Completions"])

OPENING = 1000
"""Characters or tokens of a prompt that say which engine its cache is on."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Continuation:
    """A request made ready. n of ``written`` answers to each prompt are told; echoes: the prompts, where wanted."""

    order: Order
    asks: tuple[Ask, ...]
    n: int
    written: int
    echoes: tuple[str, ...]
    logprobs: int | None
    include_usage: bool
    id: str
    created: int

    def told(self, choices: list[CompletionChoice], **fields: object) -> Completion:
        return Completion(
            id=self.id,
            created=self.created,
            model=self.order.model.id,
            choices=choices,
            system_fingerprint=served_models.fingerprint(self.order.model),
            **fields,  # type: ignore[arg-type]
        )

    def echo(self, index: int) -> str:
        return self.echoes[index // self.n] if self.echoes else ""


@router.post("/completions", auth=scoped("chat"), summary="Create a completion")
async def create_completion(request: HttpRequest, body: CompletionRequest) -> HttpResponseBase:
    """Continuations of one prompt or several, or with ``stream`` their pieces as they are written."""
    return await answered(request, body, prepare=prepare, begin=begin, whole=collect, streamed=chunks)


async def prepare(
    body: CompletionRequest,
    key: ApiKey,
    *,
    purpose: str = Generation.Purpose.API,
    request_class: RequestClass = "api",
) -> Continuation:
    """Check the request and tokenise its prompts. Raises ApiError."""
    model = served_models.find_model(body.model)
    n = body.n or 1
    written = max(n, body.best_of or n)
    _check(body, n)
    sampling = _sampling(body, written, model.vocabulary_size)
    prompts = _prompts(body)
    for each in prompts:
        if isinstance(each, str):
            tokenizing.check_characters(len(each), model, "prompt")
        else:
            tokenizing.check_length(each, model, "prompt")
    address = served_models.choose_engine(model, f"{key.tenant_id}:{body.user or str(prompts[0][:OPENING])}")
    tokens = [
        await tokenizing.tokens_of_text(address, prompt) if isinstance(prompt, str) else prompt for prompt in prompts
    ]
    for prompt in tokens:
        tokenizing.check_length(prompt, model, "prompt")
        if max(prompt) >= model.vocabulary_size:
            raise ApiError("invalid_value", f"Token ids must be in 0..{model.vocabulary_size - 1}.", "prompt")
    echoes: list[str] = []
    if body.echo:
        echoes = [each if isinstance(each, str) else await tokenizing.text_of_tokens(address, each) for each in prompts]
    return Continuation(
        order=Order(key, address, model, purpose, request_class),
        asks=tuple(Ask(prompt, sampling) for prompt in tokens),
        n=n,
        written=written,
        echoes=tuple(echoes),
        logprobs=body.logprobs,
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        id=f"cmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
    )


async def begin(continuation: Continuation) -> Running:
    """Hold what it may use, and have the engine begin it. Raises ApiError."""
    return await running.begin(continuation.order, continuation.asks, continuation.written, prompt_param="prompt")


async def collect(continuation: Continuation, calls: Running) -> Completion:
    """All answers: of each prompt the n most probable, where more were written. Raises ApiError."""
    written = await answers.whole(calls)
    texts = TokenTexts(continuation.order)
    told: list[CompletionChoice] = []
    for start in range(0, len(written), continuation.written):
        group = written[start : start + continuation.written]
        if continuation.written > continuation.n:
            group = sorted(group, key=lambda answer: answer.mean_logprob, reverse=True)[: continuation.n]
        for answer in group:
            logprobs = None
            if continuation.logprobs is not None:
                await texts.learn(answer.logprobs)
                offsets = Offsets(texts)
                places = [place for tokens, text in answer.told for place in offsets.of(tokens, text)]
                logprobs = texts.of_completion(answer.logprobs, places, top=continuation.logprobs > 0)
            text = continuation.echo(len(told)) + answer.text
            told.append(CompletionChoice(len(told), text, finish_of(answer.finish), logprobs))
    return continuation.told(told, usage=usage.of(calls))


async def chunks(continuation: Continuation, calls: Running) -> AsyncGenerator[bytes, None]:
    """Events, as the answers are written, to [DONE]. Raises ApiError."""
    usage_on_chunks = None if continuation.include_usage else msgspec.UNSET
    texts = TokenTexts(continuation.order)
    offsets: defaultdict[int, Offsets] = defaultdict(lambda: Offsets(texts))

    def chunk(choice: CompletionChoice) -> bytes:
        return event(_encode(continuation.told([choice], usage=usage_on_chunks)))

    async with calls:
        if continuation.echoes:
            for index in range(len(calls.calls) * continuation.n):
                yield chunk(CompletionChoice(index, continuation.echo(index), None))
        async for piece in calls.pieces():
            logprobs = None
            if continuation.logprobs is not None and piece.delta is not None:
                await texts.learn(piece.delta.logprobs)
                places = offsets[piece.index].of(piece.delta.logprobs, piece.text)
                if places:
                    logprobs = texts.of_completion(piece.delta.logprobs, places, top=continuation.logprobs > 0)
            finish = None if piece.finish is None else finish_of(piece.finish)
            if piece.text or logprobs or finish:
                yield chunk(CompletionChoice(piece.index, piece.text, finish, logprobs))
        if continuation.include_usage:
            yield event(_encode(continuation.told([], usage=usage.of(calls))))
        yield DONE


def finish_of(reason: str) -> Literal["stop", "length"]:
    """The engine's reason in OpenAI's words."""
    return "length" if reason == "length" else "stop"


def _check(body: CompletionRequest, n: int) -> None:
    if body.best_of is not None:
        if body.best_of < n:
            raise ApiError("invalid_value", f"best_of must not be below n ({n}).", "best_of")
        if body.best_of > n and body.stream:
            raise ApiError("invalid_value", "The best of several answers cannot be streamed.", "best_of")
        if body.best_of > n and body.beam_width:
            raise ApiError(
                "invalid_value", "Beam search chooses the best answers itself: leave best_of out.", "best_of"
            )
    if body.echo and body.logprobs is not None:
        raise ApiError("unsupported_value", "Log probabilities of the prompt are not offered.", "echo")


def _sampling(body: CompletionRequest, written: int, vocabulary_size: int) -> Sampling:
    logprobs = body.logprobs
    if written > (body.n or 1):
        logprobs = logprobs or 0
    return sampling_of(
        body, body.max_tokens or MAX_TOKENS, n=written, logprobs=logprobs, vocabulary_size=vocabulary_size
    )


def _prompts(body: CompletionRequest) -> list[str | tuple[int, ...]]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    tokens = [each for each in prompt if isinstance(each, int)]
    if tokens:
        return [tuple(tokens)]
    return [each if isinstance(each, str) else tuple(each) for each in prompt if not isinstance(each, int)]
