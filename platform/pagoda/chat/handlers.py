"""What each request does: one method per type. Answers carry the request's ``request_id``."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from channels.db import database_sync_to_async

from pagoda.chat import context, conversations, hints, requests, submissions
from pagoda.chat.identity import Identity
from pagoda.chat.requests import RequestRefused
from pagoda.chat.streams import Send, Streams
from pagoda.chat.submissions import Plan, Submitted
from pagoda.engines import connections
from pagoda.generations import recorder, stream
from pagoda.tenants.scoping import tenant_scope
from pagoda_inference.client import EngineRefused, EngineUnavailable
from pagoda_inference.protocol import ChatMessage, ModelInfo

T = TypeVar("T")
Json = dict[str, Any]

_UNAVAILABLE = "No engine can be reached now: try again."


_unbroken: set[asyncio.Task[Any]] = set()


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work``, and let it finish when the socket goes away meanwhile: rows that are written get a recorder."""
    task = asyncio.create_task(work)
    _unbroken.add(task)
    task.add_done_callback(_unbroken.discard)
    return await asyncio.shield(task)


class Handlers:
    """The requests of one identity on one socket. channel: the socket's own, which needs no hints of what it did."""

    def __init__(self, identity: Identity, streams: Streams, send: Send, channel: str) -> None:
        self._identity = identity
        self._streams = streams
        self._send = send
        self._channel = channel

    async def answer(self, request: requests.Request, echo: Json) -> None:
        """Carry out a request. Raises RequestRefused."""
        match request:
            case requests.Ping():
                await self._send({"type": "pong"} | echo)
            case requests.ListConversations():
                await self._list(request, echo)
            case requests.OpenConversation():
                await self._open(request.conversation_id, echo)
            case requests.RenameConversation():
                await self._rename(request, echo)
            case requests.DeleteConversation():
                await self._delete(request.conversation_id, echo)
            case requests.AttachGeneration():
                await self._attach(request)
            case requests.DetachGeneration():
                await self._streams.detach(request.generation_id)
            case requests.StopGeneration():
                await self._stop(request.generation_id, echo)
            case requests.CreateMessage() | requests.RegenerateMessage() | requests.ContinueMessage():
                await self._submit(request, echo)

    # --- conversations ------------------------------------------------------------------------------------------------

    async def _list(self, request: requests.ListConversations, echo: Json) -> None:
        page, following = await self._query(conversations.page, request.before, request.limit)
        await self._send({"type": "conversation.page", "conversations": page, "next": following} | echo)

    async def _open(self, conversation_id: uuid.UUID, echo: Json) -> None:
        opened = await self._query(conversations.open_conversation, conversation_id)
        running = [message for message in opened["messages"] if message["state"] == "streaming"]
        # What this socket already follows would run ahead of the texts it is about to get.
        for message in running:
            await self._streams.detach(uuid.UUID(message["generation"]["id"]))
        await self._send({"type": "conversation.opened"} | opened | echo)
        for message in running:
            generation = message["generation"]
            self._streams.check_room()
            await self._streams.attach(uuid.UUID(generation["id"]), uuid.UUID(message["id"]), generation["seq"])

    async def _rename(self, request: requests.RenameConversation, echo: Json) -> None:
        renamed = await self._query(conversations.rename, request.conversation_id, request.title)
        await self._tell_all({"type": "conversation.changed", "conversation": renamed}, echo)

    async def _delete(self, conversation_id: uuid.UUID, echo: Json) -> None:
        for generation_id in await self._query(conversations.delete, conversation_id):
            await self._streams.detach(generation_id)
            await stream.stop(self._identity.tenant.pk, generation_id)
        await self._tell_all({"type": "conversation.deleted", "conversation_id": str(conversation_id)}, echo)

    # --- generations --------------------------------------------------------------------------------------------------

    async def _attach(self, request: requests.AttachGeneration) -> None:
        message_id = await self._query(conversations.message_of_generation, request.generation_id)
        self._streams.check_room(request.generation_id)
        await self._streams.attach(request.generation_id, message_id, request.after_seq)

    async def _stop(self, generation_id: uuid.UUID, echo: Json) -> None:
        message_id = await self._query(conversations.message_of_generation, generation_id)
        await stream.stop(self._identity.tenant.pk, generation_id)
        await self._send({"type": "generation.stopping", "generation_id": str(generation_id)} | echo)
        self._streams.await_receipt(generation_id, message_id)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _submit(self, request: requests.Submit, echo: Json) -> None:
        self._streams.check_room()
        prepared = await self._query(submissions.prepare, request)
        submitted = prepared if isinstance(prepared, Submitted) else await _to_the_end(self._begin(prepared))
        generation = submitted.generation
        await self._send(
            {
                "type": "message.created",
                "client_id": request.client_id,
                "repeated": submitted.repeated,
                "conversation": submitted.conversation,
                "user_message": submitted.user_message,
                "assistant_message": submitted.assistant_message,
                "generation_id": str(generation.pk),
            }
            | echo
        )
        # A repeated request gets what its answer has by now: the client may have heard nothing of it.
        await self._streams.attach(generation.pk, submitted.assistant_message_id)
        if not submitted.repeated:
            changed = {"type": "conversation.changed", "conversation": submitted.conversation}
            await hints.send(self._identity.group, changed, self._channel)

    async def _begin(self, plan: Plan) -> Submitted:
        """Cut the context, write the rows, and have the answer recorded. Without an engine nothing is written."""
        address = connections.engine_for(str(plan.conversation_id))
        model = connections.model_of(address)
        if model is None or connections.default_model() is None:
            raise RequestRefused("unavailable", _UNAVAILABLE, retry_after_s=1.0)
        messages = await self._fit(plan, address, model)
        if plan.kept and plan.continued is not None:
            plan = replace(plan, kept_ids=await self._tokens_of(plan.kept, plan.continued.token_ids, address))
        recording = recorder.current()
        submitted = await self._query(submissions.commit, plan, messages, model=model, owner=recording.owner)
        if not submitted.repeated:
            recording.start(submitted.generation)
        return submitted

    async def _fit(self, plan: Plan, address: str, model: ModelInfo) -> tuple[ChatMessage, ...]:
        wanted = plan.request.sampling.max_tokens
        if wanted is not None and wanted > model.context_length:
            raise RequestRefused("invalid", f"At most {model.context_length}.", "sampling.max_tokens")

        async def count(messages: tuple[ChatMessage, ...]) -> int:
            client = await connections.get_client(address)
            return len((await client.tokenize(messages=messages)).token_ids)

        room = context.room_for_prompt(model.context_length, wanted or submissions.MAX_TOKENS)
        try:
            return await context.fit(plan.turns, room, count)
        except EngineUnavailable:
            raise RequestRefused("unavailable", _UNAVAILABLE, retry_after_s=1.0) from None
        except EngineRefused as refused:
            raise RequestRefused("invalid", refused.error.message, "content") from None

    async def _tokens_of(self, content: str, token_ids: Sequence[int], address: str) -> tuple[int, ...]:
        """The tokens of what a Continue keeps. Without them it works as well, and finds less in the cache."""

        async def decode(ids: tuple[int, ...]) -> str:
            client = await connections.get_client(address)
            return (await client.detokenize(ids)).text

        try:
            return await context.tokens_of(content, token_ids, decode)
        except (EngineRefused, EngineUnavailable):
            return ()

    # --- shared -------------------------------------------------------------------------------------------------------

    async def _query(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a synchronous function of the database with this identity, under its tenant's scope."""

        def scoped() -> T:
            with tenant_scope(self._identity.tenant.pk):
                return function(self._identity, *args, **kwargs)

        return await database_sync_to_async(scoped)()

    async def _tell_all(self, payload: Json, echo: Json) -> None:
        """The answer to this socket, a hint to the member's others."""
        await self._send(payload | echo)
        await hints.send(self._identity.group, payload, self._channel)
