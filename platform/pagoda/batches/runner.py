"""The runner: carries out whatever batches wait, side by side on one loop, and ends when there are none.

One in a process, one at a time on a machine: batches last hours, and must not take up every place of the worker.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from pagoda.batches import lease
from pagoda.batches.batch_run import BatchRun
from pagoda.engines import connections, reports
from pagoda.generations import calls
from pagoda.generations.cancellation import end
from pagoda.generations.database_threads import in_database

logger = logging.getLogger(__name__)

FULL_WIDTH = 16
"""So many batches have PAGODA_BATCH_LINES_IN_FLIGHT each; more of them share as many lines."""
LOOK_S = 1.0
STOP_S = 6.0
"""How long a batch may take to stop what is in flight."""
FIRST_ENGINE_S = 5.0
"""How long the runner waits for an engine before it begins: without one, every line would be tried in vain."""


async def run_waiting(stopping: Callable[[], bool], now: Callable[[], datetime] = timezone.now) -> int:
    """Carry batches out until none is left that this runner can take, or ``stopping()``. Returns how many it took.

    Where calls can be made: after ``calls.start_up``. Stopped, it lets the lines in flight come to their end, for
    PAGODA_BATCH_GRACE_S, and gives its leases up.
    """
    running: dict[asyncio.Task[None], BatchRun] = {}
    taken = 0
    try:
        while not stopping():
            owner = lease.new_owner()
            try:
                claimed = await in_database(lease.claim, owner, [run.batch for run in running.values()])
            except DatabaseError:
                logger.exception("no batches were taken")
                claimed = []
            for held in claimed:
                run = BatchRun(held, owner, now)
                running[asyncio.create_task(run.carry_out())] = run
                taken += 1
            if not running:
                break
            for run in running.values():
                run.width = width(len(running))
            await asyncio.wait(running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            running = {task: run for task, run in running.items() if not task.done()}
        await _leave(running)
    finally:
        await end(list(running))
    return taken


def width(batches: int) -> int:
    """Lines in flight of each of so many batches."""
    return max(1, settings.PAGODA_BATCH_LINES_IN_FLIGHT * FULL_WIDTH // max(batches, FULL_WIDTH))


async def _leave(running: dict[asyncio.Task[None], BatchRun]) -> None:
    for run in running.values():
        await run.leave()
    if running:
        _, late = await asyncio.wait(running, timeout=settings.PAGODA_BATCH_GRACE_S)
        for task in late:
            running[task].cut_short()
        if late:
            await asyncio.wait(late, timeout=STOP_S)


async def run_process(stopping: Callable[[], bool]) -> int:
    """``run_waiting`` in a process that has no server: with connections to the engines and calls of its own."""
    await connections.start()
    await calls.start_up()
    try:
        await _first_engine()
        return await run_waiting(stopping)
    finally:
        await calls.shut_down()
        await connections.stop()


@contextmanager
def only_one() -> Iterator[bool]:
    """Whether no other runner works on this machine; held while the block runs, however the process ends."""
    path = Path(settings.PAGODA_HOME, "run", "batches.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


async def _first_engine() -> None:
    for _ in range(round(FIRST_ENGINE_S / 0.05)):
        if any(reports.is_reachable(address) for address in settings.PAGODA_ENGINES):
            return
        await asyncio.sleep(0.05)
