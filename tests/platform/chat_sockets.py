"""A client of the chat's websocket, as a test speaks through it."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from pagoda.asgi import application
from pagoda.tenants.models import User

Json = dict[str, Any]

PATIENCE_S = 60.0
_numbers = itertools.count()


def client_id() -> str:
    return f"client-{next(_numbers):06}"


@dataclass
class Answer:
    """A generation as a client puts it together: by the rules of docs/websocket.md and nothing else."""

    text: str = ""
    seq: int = 0
    events: list[Json] = field(default_factory=list)
    finished: Json | None = None
    doubled: int = 0

    def apply(self, event: Json) -> None:
        self.events.append(event)
        kind = event["type"]
        if kind == "generation.finished":
            self.finished = event
            return
        if kind == "generation.snapshot":
            self.text, self.seq = event["text"], event["seq"]
            return
        if event["seq"] <= self.seq:
            self.doubled += 1
            return
        assert event["seq"] == self.seq + 1, f"event {event['seq']} after {self.seq}"
        self.seq = event["seq"]
        if kind == "generation.delta":
            self.text += event["text"]

    def kinds(self) -> list[str]:
        return [event["type"].removeprefix("generation.") for event in self.events]

    @property
    def state(self) -> str | None:
        return self.finished["state"] if self.finished else None


def sign_in(user: User) -> SessionStore:
    """A session as the sign-in page makes it. Synchronous."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return session


class Socket:
    """One websocket. What was received and not asked for yet waits in ``unread``."""

    def __init__(self, session_key: str | None = None, origin: str | None = "http://localhost") -> None:
        headers = [(b"host", b"localhost")]
        if origin is not None:
            headers.append((b"origin", origin.encode()))
        if session_key is not None:
            headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={session_key}".encode()))
        self._communicator = WebsocketCommunicator(application, "/ws/v1", headers=headers)
        self.unread: list[Json] = []

    async def connect(self) -> None:
        connected, _ = await self._communicator.connect(timeout=PATIENCE_S)
        assert connected

    async def hello(self, **fields: Any) -> Json:
        await self.connect()
        await self.send("hello", version=1, **fields)
        return await self.expect("welcome")

    async def send(self, kind: str, **fields: Any) -> None:
        await self.send_text(json.dumps({"type": kind} | fields))

    async def send_text(self, text: str) -> None:
        await self._communicator.send_to(text_data=text)

    async def send_bytes(self, data: bytes) -> None:
        await self._communicator.send_to(bytes_data=data)

    async def receive(self, within_s: float = PATIENCE_S) -> Json:
        """The next message, whatever it is."""
        message: Json = await self._communicator.receive_json_from(timeout=within_s)
        return message

    async def expect(self, kind: str, within_s: float = PATIENCE_S, **fields: Any) -> Json:
        """The next message of this type and with these fields; others stay unread."""
        for message in self.unread:
            if _matches(message, kind, fields):
                self.unread.remove(message)
                return message
        async with asyncio.timeout(within_s):
            while True:
                message = await self.receive(within_s)
                if _matches(message, kind, fields):
                    return message
                self.unread.append(message)

    async def expect_close(self, within_s: float = PATIENCE_S) -> int:
        """The close code; messages before it stay unread."""
        async with asyncio.timeout(within_s):
            while True:
                output = await self._communicator.receive_output(timeout=within_s)
                if output["type"] == "websocket.close":
                    code: int = output["code"]
                    return code
                self.unread.append(json.loads(output["text"]))

    async def is_silent(self, for_s: float = 0.1) -> bool:
        """Whether nothing arrives for a moment."""
        silent: bool = await self._communicator.receive_nothing(timeout=for_s)
        return silent

    async def request(self, kind: str, answer: str, **fields: Any) -> Json:
        """Send and await the answer with the same request_id; an ``error`` is an answer as well."""
        request_id = f"request-{next(_numbers)}"
        await self.send(kind, request_id=request_id, **fields)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.receive()
                if message.get("request_id") == request_id:
                    assert message["type"] == answer, message
                    return message
                self.unread.append(message)

    async def refusal(self, kind: str, **fields: Any) -> Json:
        """Send, and await the error."""
        return await self.request(kind, "error", **fields)

    async def ask(self, content: str, **fields: Any) -> Json:
        """message.create; gives message.created."""
        fields.setdefault("client_id", client_id())
        fields.setdefault("sampling", {"temperature": 0})
        return await self.request("message.create", "message.created", content=content, **fields)

    async def next_event(self, generation_id: str, within_s: float = PATIENCE_S) -> Json:
        """The next event of a generation."""
        for message in self.unread:
            if _is_event(message, generation_id):
                self.unread.remove(message)
                return message
        async with asyncio.timeout(within_s):
            while True:
                message = await self.receive(within_s)
                if _is_event(message, generation_id):
                    return message
                self.unread.append(message)

    async def read_until(self, generation_id: str, seq: int, answer: Answer | None = None) -> Answer:
        """Events up to ``seq``, or to the end where it comes earlier."""
        answer = answer or Answer()
        while answer.seq < seq and answer.finished is None:
            answer.apply(await self.next_event(generation_id))
        return answer

    async def read_answer(self, generation_id: str, answer: Answer | None = None) -> Answer:
        """All events to the end."""
        return await self.read_until(generation_id, 1 << 60, answer)

    async def close(self) -> None:
        await self._communicator.disconnect(timeout=PATIENCE_S)


def _matches(message: Json, kind: str, fields: Json) -> bool:
    return message["type"] == kind and all(message.get(name) == value for name, value in fields.items())


def _is_event(message: Json, generation_id: str) -> bool:
    kinds = ("generation.snapshot", "generation.started", "generation.delta", "generation.finished")
    return message["type"] in kinds and message["generation_id"] == generation_id
