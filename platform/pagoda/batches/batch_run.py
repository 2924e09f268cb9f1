"""One batch from its input to its files: checked, carried out line by line with many in flight, written down.

Whatever happens to the process, the next runner goes on where the rows say: lines with a result are done, all others
are not. A line that was in flight is asked again; what the engine had done for it is settled, once, as cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

from django.conf import settings
from django.db import DatabaseError, connection

from pagoda.api.errors import ApiError
from pagoda.api.limit_errors import limit_reached
from pagoda.batches import input_file, lease, line_run, output, results, storage
from pagoda.batches.input_file import Line
from pagoda.batches.lease import Held
from pagoda.batches.line_run import LineRun
from pagoda.batches.models import Batch, BatchLine
from pagoda.batches.models.batches import Status
from pagoda.batches.objects import BatchError
from pagoda.batches.results import WAITED_FOR, Expected, Place
from pagoda.batches.validation import validate
from pagoda.generations.cancellation import end
from pagoda.generations.database_threads import in_database
from pagoda.tenants.scoping import tenant_scope
from pagoda.usage.admission import LimitReached

logger = logging.getLogger(__name__)

RENEW_S = 1.0
ENGINE_AWAY_S = 1.0
"""Until a line is tried again that no engine could take."""
MOST_WAIT_S = 30.0
SETTLE_S = 3.0
"""How long a batch that ends waits for the settlements of what it stopped; others settle them then."""
ATTEMPTS = 3
"""Of a line that fails by a fault of ours."""


class BatchRun:
    """A batch whose lease ``owner`` holds. now: the time, for its window."""

    def __init__(self, held: Held, owner: str, now: Callable[[], datetime]) -> None:
        self.batch = held.batch
        self.owner = owner
        self.width = settings.PAGODA_BATCH_LINES_IN_FLIGHT
        """Lines in flight at most."""
        self._held = held
        self._now = now
        self._outcome = ""
        self._why: BatchError | None = None
        self._lost = self._left = False
        self._owning = asyncio.Lock()
        self._runs: set[LineRun] = set()
        self._line_ended = asyncio.Condition()
        self._begin_after = 0.0
        self._leaving = asyncio.Event()
        self._ending = asyncio.Event()

    async def leave(self) -> None:
        """Leave the batch to the next runner: no line is begun any more, those in flight come to their end."""
        self._left = True
        self._leaving.set()
        async with self._line_ended:
            self._line_ended.notify_all()

    def cut_short(self) -> None:
        """Stop what is in flight; what is written stays."""
        self._ending.set()

    async def carry_out(self) -> None:
        """Until the batch is final, is left or is lost to another runner."""
        keeping = asyncio.create_task(self._keep())
        try:
            await self._carry_out()
            if self._left:
                await in_database(lease.release, self.batch.pk, self.owner)
        except Exception:
            # The lease runs out, and whoever looks next tries again.
            logger.exception("batch %s: given up for now", self.batch.pk)
        finally:
            await end([keeping])

    async def _carry_out(self) -> None:
        self._look(self._held)
        if self.batch.status == Status.VALIDATING and not self._outcome:
            status = await validate(self.batch, self.owner, self._now)
            if status is None or status == Status.FAILED:
                return
            self.batch.status = status
        if self.batch.status == Status.IN_PROGRESS and not self._outcome:
            await self._work()
        if not self._lost and not self._left:
            await self._finalize(self._outcome or Status.COMPLETED)

    async def _keep(self) -> None:
        """Keep the lease, and see what is wanted of the batch by now."""
        while True:
            try:
                async with self._owning:
                    held = await in_database(lease.renew, self.batch.pk, self.owner)
            except DatabaseError:
                logger.exception("batch %s: the lease was not renewed", self.batch.pk)
            else:
                if held is None:
                    self._lost = True
                    self._ending.set()
                    return
                self._look(held)
            await asyncio.sleep(RENEW_S)

    def _look(self, held: Held) -> None:
        """Whether the batch is to end early, and why."""
        self._held = held
        if self._outcome:
            return
        if held.batch.status == Status.CANCELLING:
            self._outcome = Status.CANCELLED
        elif self._now() >= held.batch.expires:
            self._outcome = Status.EXPIRED
        elif held.key is None:
            self._outcome = Status.CANCELLED
            self._why = BatchError("invalid_api_key", "The API key of this batch was revoked, or expired.")
        if self._outcome:
            self._ending.set()

    # --- its lines ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        done = await in_database(_done, self.batch)
        path = storage.path_of(self.batch.tenant_id, self.batch.input_file)
        lines = input_file.read(path, self.batch.endpoint, done.__contains__)
        working = asyncio.create_task(self._take_all(lines))
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
        finally:
            ending.cancel()
            await end([working])
            await self._settled()

    async def _settled(self) -> None:
        """Until the calls that were stopped have told what they used; SETTLE_S at most."""
        calls = [call for run in self._runs for call in run.calls]
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while not all(call.ended for call in calls):  # noqa: ASYNC110  (calls have no event for it)
                    await asyncio.sleep(0.02)

    async def _take_all(self, lines: Iterator[Line]) -> None:
        """As many in flight as there may be, until there are none left or the batch is; then until these have ended."""
        in_flight: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            for line in lines:
                if self._left:
                    break
                in_flight.add(group.create_task(self._run_line(Place(self.batch, self.owner, line))))
                while len(in_flight) >= self.width:
                    _, in_flight = await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)

    async def _run_line(self, place: Place) -> None:
        """Until the line has a result, or is left before it was begun. What is no fault of its own is waited for, as
        long as the batch lasts."""
        failures = 0
        while True:
            await self._pause(self._begin_after - asyncio.get_running_loop().time())
            if self._left:
                return
            try:
                await self._attempt(place)
                return
            except LimitReached as reached:
                if reached.retry_after_s is None or reached.kind == "budget":
                    await in_database(results.write_error, place, limit_reached(reached))
                    return
                await self._wait(reached)
            except ApiError as error:
                if error.body.error.code not in WAITED_FOR:
                    await in_database(results.write_error, place, error)
                    return
                await self._pause(ENGINE_AWAY_S)
            except Exception:
                logger.exception("batch %s, line %d", self.batch.pk, place.line.number)
                failures += 1
                if failures == ATTEMPTS:
                    failure = ApiError("internal_error", "The server failed to carry this request out.")
                    await in_database(results.write_error, place, failure)
                    return
                await self._pause(ENGINE_AWAY_S)

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the batch is left."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._leaving.wait()

    async def _attempt(self, place: Place) -> None:
        """Ask once, unless the batch is left.

        Raises ApiError, LimitReached; RuntimeError where the settlement did not write the result.
        """
        key = self._held.key
        if key is None:
            raise ApiError("invalid_api_key", "The API key was revoked or expired.")
        prepared = await line_run.prepare(self.batch.endpoint, place.line.body, key)
        if self._left:
            return
        run = await line_run.begin(prepared)
        self._runs.add(run)
        try:
            async with run:
                with Expected(place, run):
                    await run.collect()
        finally:
            if all(call.ended for call in run.calls):
                self._runs.discard(run)
        async with self._line_ended:
            self._line_ended.notify()
        if not run.written and not self._lost:
            raise RuntimeError("the settlement did not write the result")

    async def _wait(self, reached: LimitReached) -> None:
        """For room: at the latest until the limit says so; where it is of generations at a time, until one ends."""
        seconds = min(max(reached.retry_after_s or 0.0, 0.05), MOST_WAIT_S)
        if reached.kind != "concurrent":
            self._begin_after = max(self._begin_after, asyncio.get_running_loop().time() + seconds)
            return
        try:
            async with asyncio.timeout(seconds), self._line_ended:
                await self._line_ended.wait()
        except TimeoutError:
            return

    # --- its end ------------------------------------------------------------------------------------------------------

    async def _finalize(self, outcome: str) -> None:
        async with self._owning:
            owner = await in_database(
                lease.begin_finalizing, self.batch.pk, self.owner, outcome, self._why, self._now()
            )
            if owner is None:
                return
            self.owner = owner
            held = await in_database(lease.renew, self.batch.pk, owner)
        if held is not None:
            # Not a short call: the database's own threads stay free for the settlements and leases of other batches.
            await asyncio.to_thread(_write_files, held.batch, self._now())


def _write_files(batch: Batch, now: datetime) -> None:
    try:
        output.write_and_finish(batch, now)
    finally:
        connection.close()


def _done(batch: Batch) -> set[int]:
    with tenant_scope(batch.tenant_id):
        return set(BatchLine.objects.filter(batch=batch).values_list("number", flat=True))
