"""A server of the completions API that a replay is tried against: it answers as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bench.replay.server import Address, Server

KEYS = {"acme": "pgd_acme", "rival": "pgd_rival"}

Write = Callable[[bytes], Awaitable[None]]
"""Of one piece of an answer, for a server's answer to a completion."""


def event(content: dict[str, Any] | str) -> bytes:
    text = content if isinstance(content, str) else json.dumps(content)
    return f"data: {text}\n\n".encode()


def usage(written: int, cached: int = 0) -> bytes:
    details = {"completion_tokens": written, "prompt_tokens_details": {"cached_tokens": cached}}
    return event({"choices": [], "usage": details}) + event("[DONE]")


async def answer(body: dict[str, Any], write: Write) -> None:
    """A token a piece, at once."""
    for _ in range(body["max_tokens"]):
        await write(event({"choices": [{"text": "a"}]}))
    await write(usage(body["max_tokens"], len(body["prompt"]) // 2))


@dataclass
class Asked:
    """A completion that the server was asked for. at: on the loop's clock."""

    key: str
    body: dict[str, Any]
    at: float
    ended: float | None = None


@dataclass
class FakeServer:
    """Answers as ``behave`` does; ``refuse``: status and body instead of an answer, by what was asked."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    behave: Callable[[dict[str, Any], Write], Awaitable[None]] = answer
    refuse: Callable[[Asked], tuple[int, bytes] | None] = lambda asked: None
    models: dict[str, int] = field(default_factory=lambda: {"fake": 4096})

    @property
    def server(self) -> Server:
        return Server(Address("127.0.0.1", self.port, tls=False), "fake", 4096)

    def prompts(self, key: str) -> list[list[int]]:
        return [each.body["prompt"] for each in self.asked if each.key == key]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            content = await reader.readexactly(int(fields["content-length"]))
            if head.startswith("GET /v1/models "):
                models = {"data": [{"id": name, "context_length": length} for name, length in self.models.items()]}
                _whole(writer, 200, json.dumps(models).encode())
            else:
                await self._complete(fields["authorization"].removeprefix("bearer "), json.loads(content), writer)
        finally:
            writer.close()

    async def _complete(self, key: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        asked = Asked(key, body, clock())
        self.asked.append(asked)
        if refusal := self.refuse(asked):
            _whole(writer, *refusal)
            return

        async def write(piece: bytes) -> None:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()

        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self.behave(body, write)
        writer.write(b"0\r\n\r\n")
        asked.ended = clock()


def _whole(writer: asyncio.StreamWriter, status: int, content: bytes) -> None:
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content))
