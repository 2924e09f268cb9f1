"""A small client of HTTP/1.1 for benchmarks: one connection that stays open, so that what is timed is the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any


class Refused(RuntimeError):
    """Another status than 200. content: what the server answered with it."""

    def __init__(self, path: str, status: int, content: bytes) -> None:
        super().__init__(f"{path} answered {status}: {content.decode(errors='replace')[:500]}")
        self.status = status
        self.content = content


class Connection:
    """One connection, for requests one after the other. Use as an async context manager.

    key: an API key, sent with each. tls: whether it is encrypted and the server's certificate checked.
    """

    def __init__(self, port: int, key: str, *, host: str = "127.0.0.1", tls: bool = False) -> None:
        self._host = host
        self._port = port
        self._key = key
        self._tls = tls

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls or None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def post(self, path: str, body: Any) -> int:
        """Send a body as JSON and read the answer to its end: its status."""
        status, headers = await self._send("POST", path, body)
        async for _ in self._pieces(headers):
            pass
        return status

    async def get(self, path: str) -> int:
        """The status of a page."""
        status, headers = await self._send("GET", path, None)
        async for _ in self._pieces(headers):
            pass
        return status

    async def get_json(self, path: str) -> Any:
        """What a page has as JSON. Raises Refused for another status than 200."""
        status, headers = await self._send("GET", path, None)
        content = b"".join([piece async for piece in self._pieces(headers)])
        if status != 200:
            raise Refused(path, status, content)
        return json.loads(content)

    async def events(self, path: str, body: Any) -> AsyncIterator[dict[str, Any]]:
        """The objects of a stream of server-sent events. Raises Refused for another status than 200."""
        status, headers = await self._send("POST", path, body)
        if status != 200:
            raise Refused(path, status, b"".join([piece async for piece in self._pieces(headers)]))
        unread = b""
        async for piece in self._pieces(headers):
            *lines, unread = (unread + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    yield json.loads(line.removeprefix(b"data: "))

    async def _send(self, method: str, path: str, body: Any) -> tuple[int, dict[str, str]]:
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = (line.partition(":") for line in lines if line)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}

    async def _pieces(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        """The body as it comes; read to its end, the connection takes the next request."""
        if headers.get("transfer-encoding") != "chunked":
            yield await self._reader.readexactly(int(headers.get("content-length", "0")))
            return
        while size := int(await self._reader.readline(), 16):
            piece = await self._reader.readexactly(size)
            await self._reader.readexactly(2)
            yield piece
        await self._reader.readexactly(2)
