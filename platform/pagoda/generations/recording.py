"""One generation as its recorder hears it: the engine's stream, read to its end or to the engine's death."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from pagoda.generations import service
from pagoda.generations.journal import Outcome, Snapshot
from pagoda.generations.models import Generation
from pagoda_inference.client import EngineClient, EngineRefused, EngineUnavailable, Subscription
from pagoda_inference.protocol import Delta, Error, Event, Finished, Started

logger = logging.getLogger(__name__)

GRACE_S = 3.0
"""How long a lost engine may take to come back with the generation before it counts as dead."""

Connect = Callable[[str], Awaitable[EngineClient]]
"""The client of the engine at an address. It may be unconnected. Raises EngineUnavailable for one that is not ours."""

GONE = frozenset({"engine_stopping", "unavailable"})
"""Errors of an engine that is going away: the answer can be continued when it is back, nothing is wrong with it."""


def storable(text: str) -> str:
    """PostgreSQL cannot store NUL; a model can say it. Everybody who shows or stores engine text uses this."""
    return text.replace("\x00", "\ufffd")


def as_json(error: msgspec.Struct) -> dict[str, Any]:
    """An engine's error as it is stored and shown."""
    return msgspec.to_builtins(error)


class EngineLost(Exception):
    """The engine that ran the generation is gone, or no longer knows it."""

    def __init__(self, message: str) -> None:
        self.error = {"code": "unavailable", "message": message, "details": {}}
        super().__init__(message)


class Recording:
    """A generation in progress, in the memory of the process that records it.

    begun: called once, when the engine has admitted the prompt. submitted is set when the engine was told of the
    generation on this process's connection, so that an attach on it finds the generation, or when there is nothing to
    wait for any more. settled is set when the result is committed. settling: the end was reached, the row is about to
    become final.
    """

    def __init__(self, generation: Generation, connect: Connect, begun: Callable[[Recording], None]) -> None:
        self.id = generation.pk
        self.account = generation.account
        self.address = generation.engine
        self.seq = generation.seq
        self.submitted = asyncio.Event()
        self.settled = asyncio.Event()
        self.settling = False
        self.stop_asked = generation.cancel_requested
        self._connect = connect
        self._begun = begun
        # A generation that was stored once had begun: to begin it again would double it.
        self._command = service.command(generation) if generation.state == Generation.State.QUEUED else None
        self._instance = generation.engine_instance
        self._model = generation.model
        self._keeps_text = generation.request.get("keep_text", True)
        self._client: EngineClient | None = None
        self._text = [generation.text]
        self._token_ids = list(generation.token_ids)
        self._prompt_tokens = generation.prompt_tokens
        self._cached_tokens = generation.cached_tokens
        self._output_tokens = generation.output_tokens

    def snapshot(self) -> Snapshot:
        """Everything received so far."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return Snapshot(
            generation_id=self.id,
            seq=self.seq,
            text=self._text[0],
            instance=self._instance,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            output_tokens=self._output_tokens,
            token_ids=tuple(self._token_ids),
            model=self._model,
        )

    async def acknowledge(self, seq: int) -> None:
        """Tell the engine that events up to ``seq`` are stored. A dead engine has nothing left to forget."""
        if self._client is not None and seq:
            try:
                await self._client.acknowledge(str(self.id), self.account, seq)
            except (EngineUnavailable, EngineRefused) as error:
                logger.debug("generation %s: acknowledgement %d not delivered: %s", self.id, seq, error)

    async def stop(self) -> None:
        """Cancel in the engine, now or as soon as the engine knows the generation."""
        self.stop_asked = True
        if self._client is not None and self.submitted.is_set():
            try:
                await self._client.cancel(str(self.id), self.account)
            except EngineUnavailable:
                logger.info("generation %s: stopped while its engine is away", self.id)

    async def listen(self) -> Outcome:
        """Read the engine's events to the end. Does not raise for anything an engine does."""
        try:
            return await self._listen_through_reconnections()
        except EngineLost as lost:
            if self.stop_asked:
                return Outcome(Generation.State.CANCELLED, "cancelled")
            return Outcome(Generation.State.INTERRUPTED, "error", error=lost.error)

    async def _listen_through_reconnections(self) -> Outcome:
        away_since: float | None = None
        while True:
            before = self.seq
            try:
                self._client = await self._connected(away_since)
                outcome = await self._listen_once(self._client)
                if outcome is not None:
                    return outcome
                raise EngineLost("The engine ended the stream before the answer was complete.")
            except EngineUnavailable as error:
                now = time.monotonic()
                if away_since is None or self.seq > before:
                    away_since = now
                if now - away_since >= GRACE_S:
                    raise EngineLost("The engine cannot be reached.") from error
                await asyncio.sleep(0.1)

    async def _connected(self, away_since: float | None) -> EngineClient:
        timeout = GRACE_S if away_since is None else max(0.1, away_since + GRACE_S - time.monotonic())
        try:
            client = await self._connect(self.address)
            self._model = (await client.connect(timeout=timeout)).id
        except EngineRefused as error:
            raise EngineLost(f"The engine does not accept this server: {error}") from error
        instance = client.instance or ""
        if self._instance and self._instance != instance:
            raise EngineLost("The engine was restarted while it wrote this answer.")
        self._instance = instance
        return client

    async def _listen_once(self, client: EngineClient) -> Outcome | None:
        beginning = self._command is not None and self.seq == 0
        subscription: Subscription
        if beginning and self._command is not None:
            subscription = client.generate(self._command)
        else:
            subscription = client.attach(str(self.id), self.account, self.seq)
        try:
            self.submitted.set()
            if self.stop_asked:
                await self.stop()
            async for event in subscription:
                outcome = self._take(event)
                if outcome is not None:
                    return outcome
        except EngineRefused as refusal:
            if not beginning:
                raise EngineLost("The engine no longer knows this answer.") from refusal
            self.seq = 1
            return Outcome(state_of(refusal.error), "error", error=as_json(refusal.error))
        finally:
            subscription.close()
        return None

    def _take(self, event: Event) -> Outcome | None:
        self.seq = event.seq
        if isinstance(event, Delta):
            if self._keeps_text:
                self._text.append(storable(event.text))
                self._token_ids += event.token_ids
            self._output_tokens += len(event.token_ids)
        elif isinstance(event, Started):
            self._prompt_tokens = event.prompt_tokens
            self._cached_tokens = event.cached_tokens
            self._begun(self)
        elif isinstance(event, Finished):
            return outcome_of(event)
        return None


def outcome_of(event: Finished) -> Outcome:
    """How a generation ended, by its last event. A complete one has an error where a limit of the tenant cut it."""
    if event.error is not None:
        return Outcome(state_of(event.error), event.reason, event.usage, as_json(event.error))
    if event.reason == "cancelled":
        return Outcome(Generation.State.CANCELLED, event.reason, event.usage)
    limit = None if event.limit_reached is None else as_json(event.limit_reached)
    return Outcome(Generation.State.COMPLETE, event.reason, event.usage, limit)


def state_of(error: Error) -> str:
    """The final state of a generation that this error ended."""
    return Generation.State.INTERRUPTED if error.code in GONE else Generation.State.FAILED
