"""Calls: runs of an engine that one caller waits for and nobody stores, from the hold on a budget to the settlement.

The caller's own handler reads the events; no recorder stands between, and the database is used twice: one transaction
before the first token, one after the last. A call whose caller goes away is cancelled in the engine and settled by
what the engine says it used. One whose process dies is cancelled by the engine; its lease runs out, and the recorder
that sweeps it settles it the same way.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any

from django.db import DatabaseError

from pagoda.engines import connections
from pagoda.generations import call_rows, journal, lease
from pagoda.generations.call_rows import Ask, Order
from pagoda.generations.cancellation import end
from pagoda.generations.database_threads import in_database
from pagoda.generations.models import Generation
from pagoda.generations.recording import as_json, outcome_of, state_of
from pagoda.usage import admission
from pagoda_inference.client import EngineClient, EngineRefused, EngineUnavailable, Subscription
from pagoda_inference.protocol import (
    Delta,
    Event,
    Finished,
    Generate,
    Started,
    Usage,
)

logger = logging.getLogger(__name__)

RENEW_S = 2.0
SETTLE_RETRY_S = (0.1, 0.5, 1.0, 2.0)


class Call:
    """One ask under way. ``events`` is read by one handler, on the server's loop.

    rates: the limits of its key and tenant, with it counted. usage: the engine's own, once it has ended. revoked: it
    was ended because its key may no longer be used, or not for this.
    """

    def __init__(self, command: Generate, order: Order, rates: admission.RateState, owner: str) -> None:
        self.rates = rates
        self.id = command.id
        self.account = command.account
        self.use = order.use
        self.usage: Usage | None = None
        self.revoked = False
        self.ended = False
        self.seq = 0
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self._command = command
        self._order = order
        self._owner = owner
        self._client: EngineClient | None = None
        self._subscription: Subscription | None = None
        self._settling: asyncio.Task[None] | None = None
        self._abandoned = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """Started, Delta…, Finished: the last one after the settlement.

        Raises EngineRefused when nothing was begun, EngineUnavailable when the engine went away meanwhile.
        """
        try:
            async for event in await self.open():
                self._note(event)
                if isinstance(event, Finished):
                    await self._finish(event.seq, outcome_of(event))
                yield event
        except EngineRefused as refusal:
            if self.seq:
                await self._settle_with(self._hand_over())
                raise EngineUnavailable("the engine no longer knows this answer") from refusal
            error = refusal.error
            await self._finish(1, journal.Outcome(state_of(error), "error", error=as_json(error)))
            raise
        except EngineUnavailable:
            await self._settle_with(self._hand_over())
            raise

    async def open(self) -> Subscription:
        """Begin it in the engine; ``events`` does so too. Raises EngineUnavailable."""
        if self._subscription is None:
            self._client = await connections.get_client(self._order.address)
            self._subscription = self._client.generate(self._command)
        return self._subscription

    def abandon(self) -> None:
        """Nobody reads any more: cancel it, and settle it in the background. Does nothing when it has ended."""
        if not self.ended and not self._abandoned and self._settling is None and _keeper is not None:
            self._abandoned = True
            _keeper.run(self._drain())

    async def cancel(self) -> None:
        """End it in the engine; its Finished follows."""
        if self._client is not None:
            try:
                await self._client.cancel(self.id, self.account)
            except (EngineUnavailable, EngineRefused) as error:
                logger.debug("call %s: not cancelled: %s", self.id, error)

    async def hand_over(self) -> None:
        """Leave the settlement to whichever recorder sweeps next, in this process or another."""
        if not self.ended and self._settling is None:
            await self._settle_with(self._hand_over())

    async def _drain(self) -> None:
        if self._subscription is None:
            await self._finish(0, journal.Outcome(Generation.State.CANCELLED, "cancelled"))
            return
        await self.cancel()
        try:
            async for _ in self.events():
                pass
        except (EngineRefused, EngineUnavailable) as error:
            logger.info("call %s: given up by its caller, then: %s", self.id, error)

    def _note(self, event: Event) -> None:
        self.seq = event.seq
        if isinstance(event, Delta):
            self.output_tokens += len(event.token_ids)
        elif isinstance(event, Started):
            self.prompt_tokens, self.cached_tokens = event.prompt_tokens, event.cached_tokens
        elif isinstance(event, Finished):
            self.usage = event.usage

    async def _finish(self, seq: int, outcome: journal.Outcome) -> None:
        await self._settle_with(self._settle(seq, outcome))

    async def _settle_with(self, work: Coroutine[Any, Any, None]) -> None:
        """Carried through whatever becomes of the caller."""
        self._settling = current().run(work)
        await asyncio.shield(self._settling)

    async def _settle(self, seq: int, outcome: journal.Outcome) -> None:
        snapshot = self._snapshot(seq)
        for pause in (*SETTLE_RETRY_S, None):
            try:
                await in_database(journal.settle, snapshot, outcome, self._owner)
                break
            except Exception as error:
                if pause is None:
                    # The lease runs out, and a recorder settles it by what the engine has kept.
                    logger.exception("call %s: not settled", self.id)
                    self._end()
                    return
                logger.warning("call %s: settlement failed, trying again: %r", self.id, error)
                await asyncio.sleep(pause)
        self._end()
        if self._client is not None and seq:
            try:
                await self._client.acknowledge(self.id, self.account, seq)
            except (EngineUnavailable, EngineRefused) as error:
                logger.debug("call %s: acknowledgement not delivered: %s", self.id, error)

    async def _hand_over(self) -> None:
        self._end()
        try:
            await in_database(journal.hand_over, self._snapshot(self.seq), self._owner)
        except DatabaseError:
            logger.exception("call %s: not handed over; its lease runs out", self.id)

    def _end(self) -> None:
        self.ended = True
        current().forget(self)
        if self._subscription is not None:
            self._subscription.close()

    def _snapshot(self, seq: int) -> journal.Snapshot:
        return journal.Snapshot(
            generation_id=uuid.UUID(self.id),
            seq=seq,
            text="",
            instance=(self._client.instance or "") if self._client is not None else "",
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            model=self._order.model.id,
        )


class Keeper:
    """The calls of one process: keeps their leases, ends those whose key is revoked, hands over what is left."""

    def __init__(self) -> None:
        self.owner = lease.new_owner()
        self._calls: dict[str, Call] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to keep leases."""
        lease.alive.add(self.owner)
        self._loop = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Hand over what is under way."""
        if self._loop is not None:
            await end([self._loop])
        for call in list(self._calls.values()):
            await call.hand_over()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        lease.alive.discard(self.owner)

    async def begin(self, order: Order, asks: Sequence[Ask]) -> list[Call]:
        """Hold what the asks may use and write their rows, in one transaction; all of them or none.

        Whatever is raised or cancelled, nothing stays held. Raises admission.LimitReached.
        """
        begun = self.run(self._begin(order, asks))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(_abandon_all)
            raise

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that outlives whoever asked for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def forget(self, call: Call) -> None:
        """It has ended."""
        self._calls.pop(call.id, None)

    async def _begin(self, order: Order, asks: Sequence[Ask]) -> list[Call]:
        written = await in_database(call_rows.write, order, asks, self.owner)
        calls = [Call(command, order, rates, self.owner) for command, rates in written]
        self._calls |= {call.id: call for call in calls}
        return calls

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            calls = list(self._calls.values())
            if not calls:
                continue
            try:
                usable = await in_database(
                    call_rows.renew, [call.id for call in calls], {call.use for call in calls}, self.owner
                )
            except DatabaseError:
                logger.exception("the leases of %d calls were not renewed", len(calls))
                continue
            for call in calls:
                if call.use not in usable and not call.revoked:
                    call.revoked = True
                    await call.cancel()


def _abandon_all(begun: asyncio.Task[list[Call]]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        for call in begun.result():
            call.abandon()


_keeper: Keeper | None = None


def current() -> Keeper:
    """This process's calls. Raises RuntimeError where no server runs."""
    if _keeper is None:
        raise RuntimeError("No calls can be made in this process: they begin with the web server.")
    return _keeper


async def start_up() -> None:
    """Run with the server's start."""
    global _keeper
    _keeper = Keeper()
    _keeper.open()


async def shut_down() -> None:
    """Run when the server stops, before the engines' clients are closed."""
    global _keeper
    if _keeper is not None:
        await _keeper.close()
        _keeper = None
