"""Requests sent when they are due, whatever became of the ones before, and what was answered when."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.http_client import Refused
from bench.replay.record import Record
from bench.replay.server import NO_API, Server, ServerUnusable, code_and_message, in_one_line, shortened
from bench.traces.content import Content
from bench.traces.request import TracedRequest

AHEAD_S = 0.5
"""How long before it is due a request is made ready, so that it is sent in time."""


class Sender:
    """Sends a trace's requests with their tenants' keys.

    keys: by tenant. timeout_s: for one request, from sending to the end of the answer. ended: called when a request is
    over.
    """

    def __init__(
        self,
        server: Server,
        keys: Mapping[str, str],
        content: Content,
        timeout_s: float,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = server
        self._keys = keys
        self._content = content
        self._timeout_s = timeout_s
        self._ended = ended

    async def warm_up(self) -> None:
        """One token for every tenant: keys are checked, connections and code have been used. Raises ServerUnusable."""
        request = TracedRequest(0.0, 16, 1)
        for number, (tenant, key) in enumerate(self._keys.items()):
            body = self.body(self._content.prompt(request, -1 - number), 1)
            try:
                async with asyncio.timeout(self._timeout_s):
                    failed = await self._first_error(body, key)
            except Refused as refusal:
                failed = in_one_line(refusal, key)
            except TimeoutError:
                failed = f"no answer within {self._timeout_s:g} s"
            except NO_API as error:
                failed = shortened(f"{type(error).__name__}: {error}", key)
            if failed:
                raise ServerUnusable(f"a first request of one token for {tenant} failed: {failed}")

    async def _first_error(self, body: dict[str, Any], key: str) -> str:
        """Of an answer that is a stream; "" without one."""
        async with self._server.address.connection(key) as connection:
            async for event in connection.events(self._path, body):
                if error := event.get("error"):
                    return shortened(code_and_message(error), key)
        return ""

    async def replay(self, requests: Sequence[TracedRequest], records: Sequence[Record]) -> None:
        """Send each when its record says that it is due, and fill the record in. Returns when all have ended.

        A turn of a conversation waits for the end of the one before. Cancelled, it ends what is under way.
        """
        self._begin = time.perf_counter()
        last: dict[tuple[str, str], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            for number, (request, record) in enumerate(zip(requests, records, strict=True)):
                await self._sleep_until(record.due_s - AHEAD_S)
                whose = (record.tenant, f"{request.client} {request.conversation}")
                before = last.get(whose) if request.conversation else None
                task = group.create_task(self._send(request, number, record, before))
                if request.conversation:
                    last[whose] = task

    async def _send(
        self, request: TracedRequest, number: int, record: Record, before: asyncio.Task[None] | None
    ) -> None:
        body = self.body(self._content.prompt(request, number), request.output_tokens)
        if before is not None:
            await asyncio.wait({before})
            record.due_s = max(record.due_s, self._now())
        await self._sleep_until(record.due_s)
        record.sent_s = self._now()
        try:
            async with asyncio.timeout(self._timeout_s):
                record.outcome = await self._ask(body, record)
        except Refused as refusal:
            record.outcome = _code_of(refusal)
        except TimeoutError:
            record.outcome = "timeout"
        except NO_API:
            record.outcome = "connection_lost" if record.text_s else "connection_failed"
        record.end_s = self._now()
        self._ended()

    async def _ask(self, body: dict[str, Any], record: Record) -> str:
        """The outcome. Raises Refused, and what a connection raises."""
        outcome = "stream_ended_early"
        async with self._server.address.connection(self._keys[record.tenant]) as connection:
            async for event in connection.events(self._path, body):
                if "error" in event:
                    return str(event["error"].get("code") or event["error"].get("type"))
                if event.get("choices"):
                    record.text_s.append(self._now())
                if usage := event.get("usage"):
                    record.written_tokens = usage["completion_tokens"]
                    record.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
                    outcome = "" if record.text_s else outcome
        return outcome

    def body(self, prompt: list[int], output_tokens: int) -> dict[str, Any]:
        """Of a streamed completion of exactly so many tokens."""
        return {
            "model": self._server.model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    @property
    def _path(self) -> str:
        return f"{self._server.address.path}/v1/completions"

    def _now(self) -> float:
        return time.perf_counter() - self._begin

    async def _sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._now()))


def _code_of(refusal: Refused) -> str:
    """The API's code of an error, or the status where the answer has none."""
    try:
        return str(json.loads(refusal.content)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return f"http_{refusal.status}"
