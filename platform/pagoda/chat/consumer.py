"""The websocket at /ws/v1: docs/websocket.md, version 1."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer

from pagoda.chat import access_watch, hints, identity, requests
from pagoda.chat.handlers import Handlers
from pagoda.chat.identity import Identity, Rejected
from pagoda.chat.objects import tenant_as_json
from pagoda.chat.requests import RequestRefused
from pagoda.chat.streams import Streams
from pagoda.engines import connections
from pagoda.generations.cancellation import end

logger = logging.getLogger(__name__)

BAD_HELLO = 4400
NO_HELLO = 4408
HELLO_WITHIN_S = 10.0
STALLED_S = 60.0
"""How long a client may leave what was sent to it unread before the socket is closed."""

CLOSE_WITHIN_S = 2.0

WAITING_REQUESTS = 64
"""Requests of one socket that wait for their turn; beyond them its frames are left unread."""

_GONE = (OSError, RuntimeError)
"""What a server raises to whoever sends to a client that is gone: the first on finding out, the second from then on."""

URGENT = (requests.Ping, requests.AttachGeneration, requests.DetachGeneration, requests.StopGeneration)
"""Answered while earlier requests of the same socket are still being worked on. All others keep their order."""


class ChatConsumer(AsyncWebsocketConsumer):
    """One socket. Channels hands over one frame at a time: whatever takes longer than a moment runs in a task."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.identity: Identity | None = None
        self._handlers: Handlers | None = None
        self._streams: Streams | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: asyncio.Queue[tuple[requests.Request, dict[str, Any]]] = asyncio.Queue(WAITING_REQUESTS)
        self._closed = False
        self._abandoned = False
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._serving = asyncio.current_task()
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if not self._abandoned:
                raise
        finally:
            # ``disconnect`` is not promised to be called: this is.
            await self._clean_up()

    async def connect(self) -> None:
        await self.accept()
        self._tasks.append(asyncio.create_task(self._close_without_hello()))

    async def disconnect(self, code: int) -> None:
        self._closed = True
        await self._clean_up()
        raise StopConsumer

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._closed:
            return
        message: dict[str, Any] = {}
        try:
            message = requests.read_frame(text_data)
            if self._handlers is None:
                await self._open(message)
                return
            request = requests.read_request(message)
        except RequestRefused as refusal:
            if self._handlers is None:
                await self.close_with(BAD_HELLO)
            else:
                await self._refuse(refusal, message)
            return
        if isinstance(request, URGENT):
            await self._answer(request, message)
        else:
            await self._waiting.put((request, message))

    async def send_json(self, payload: dict[str, Any]) -> None:
        """Send, waiting while the client does not read; a client that never does loses the socket."""
        if self._closed:
            return
        text = msgspec.json.encode(payload).decode()
        try:
            async with asyncio.timeout(STALLED_S):
                await self.send(text_data=text)
        except TimeoutError:
            logger.info("a socket was not read for %d s", STALLED_S)
            await self.close_with(1008)
        except _GONE:
            # ``disconnect`` is on its way.
            self._closed = True

    async def close_with(self, code: int) -> None:
        """Close, once. Nothing is sent or answered from here on."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self.close(code)
        except TimeoutError:
            # Not even the close fits behind what is unread: let the server drop the connection.
            self._abandoned = True
            if self._serving is not None:
                self._serving.cancel()
        except _GONE:
            return

    async def hint(self, event: dict[str, Any]) -> None:
        """Something of this member's changed elsewhere."""
        if event["sender"] != self.channel_name:
            await self.send_json(event["payload"])

    # --- opening ------------------------------------------------------------------------------------------------------

    async def _close_without_hello(self) -> None:
        await asyncio.sleep(HELLO_WITHIN_S)
        if self.identity is None:
            await self.close_with(NO_HELLO)

    async def _open(self, message: dict[str, Any]) -> None:
        hello = requests.read_hello(message)
        if hello.version != requests.VERSION:
            raise RequestRefused("invalid", f"Only version {requests.VERSION} is spoken here.", "version")
        try:
            found = await self._identify(hello)
        except Rejected as rejected:
            await self.close_with(rejected.code)
            return
        self.identity = found
        self._streams = Streams(found.tenant.pk, self.send_json)
        self._handlers = Handlers(found, self._streams, self.send_json, self.channel_name or "")
        await self._join(found)
        access_watch.watch(found, self.close_with)
        self._tasks.append(asyncio.create_task(self._work()))
        model = connections.default_model()
        await self.send_json(
            {
                "type": "welcome",
                "version": requests.VERSION,
                "tenant": tenant_as_json(found.tenant),
                "tenants": [tenant_as_json(each) for each in found.tenants],
                "member": found.as_member(),
                "model": {"id": model.id, "context_length": model.context_length} if model else None,
            }
            | _echo(message)
        )

    async def _identify(self, hello: requests.Hello) -> Identity:
        if hello.api_key is not None:
            return await database_sync_to_async(identity.identify_key)(hello.api_key, hello.tenant)
        if not identity.same_origin(self.scope["headers"]):
            raise Rejected(identity.NOT_SIGNED_IN)
        user, session = self.scope.get("user"), self.scope.get("session")
        user = getattr(user, "_wrapped", user)
        session_key = session.session_key if session is not None else None
        return await database_sync_to_async(identity.identify_user)(user, session_key, hello.tenant)

    async def _join(self, found: Identity) -> None:
        try:
            async with asyncio.timeout(hints.WITHIN_S):
                await self.channel_layer.group_add(found.group, self.channel_name)
        except Exception:
            logger.warning("a socket gets no hints: the channel layer is away", exc_info=True)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Requests that take longer than a moment, one after the other."""
        while True:
            request, message = await self._waiting.get()
            await self._answer(request, message)

    async def _answer(self, request: requests.Request, message: dict[str, Any]) -> None:
        assert self._handlers is not None
        try:
            await self._handlers.answer(request, _echo(message))
        except RequestRefused as refusal:
            await self._refuse(refusal, message)
        except Exception:
            logger.exception("%s failed", type(request).__name__)
            await self._refuse(RequestRefused("internal", "Something went wrong here: try again."), message)

    async def _refuse(self, refusal: RequestRefused, message: dict[str, Any]) -> None:
        payload: dict[str, Any] = {
            "type": "error",
            "client_id": _text(message, "client_id"),
            "generation_id": _text(message, "generation_id"),
            "code": refusal.code,
            "message": refusal.message,
            "field": refusal.field,
        }
        if refusal.retry_after_s is not None:
            payload["retry_after_s"] = refusal.retry_after_s
        await self.send_json(payload | _echo(message))

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _clean_up(self) -> None:
        self._closed = True
        access_watch.forget(self.close_with)
        tasks, self._tasks = [task for task in self._tasks if task is not asyncio.current_task()], []
        await end(tasks)
        if self._streams is not None:
            await self._streams.close()
        found, self.identity = self.identity, None
        if found is not None:
            try:
                async with asyncio.timeout(hints.WITHIN_S):
                    await self.channel_layer.group_discard(found.group, self.channel_name)
            except Exception:
                logger.debug("a socket could not leave its group")


def _echo(message: dict[str, Any]) -> dict[str, Any]:
    """The request_id of a message, for its answers."""
    request_id = _text(message, "request_id")
    return {} if request_id is None else {"request_id": request_id}


def _text(message: dict[str, Any], field: str) -> str | None:
    value = message.get(field)
    return value[:200] if isinstance(value, str) else None
