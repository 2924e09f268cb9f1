"""The recorder of a process: records its generations, renews their leases, takes over abandoned ones.

Independent of any socket. One per web process, started and stopped with the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Collection

from channels.db import database_sync_to_async
from django.db import DatabaseError

from pagoda.engines import connections
from pagoda.generations import journal, lease
from pagoda.generations.cancellation import end
from pagoda.generations.models import Generation
from pagoda.generations.recording import Connect, Recording

logger = logging.getLogger(__name__)

SNAPSHOT_S = 2.0
SWEEP_S = 1.0
SETTLE_RETRY_S = (0.1, 0.5, 1.0, 2.0, 4.0)


class Recorder:
    """Records generations on the running event loop.

    owner: this recorder's name in leases. Nothing here holds a database connection while it waits for an engine.
    """

    def __init__(self, connect: Connect, owner: str | None = None) -> None:
        self.owner = owner or lease.new_owner()
        self._connect = connect
        self._recordings: dict[uuid.UUID, Recording] = {}
        self._tasks: dict[uuid.UUID, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._begun: set[uuid.UUID] = set()
        self._something_begun = asyncio.Event()
        self._closing = asyncio.Event()

    def __contains__(self, generation_id: uuid.UUID) -> bool:
        return generation_id in self._recordings

    async def open(self) -> None:
        """Begin to keep leases and to look for abandoned generations."""
        self._loops = [asyncio.create_task(self._keep()), asyncio.create_task(self._sweep())]

    async def close(self) -> None:
        """Stop recording: store what was received and give the leases up, so that another process goes on at once."""
        self._closing.set()
        self._something_begun.set()
        if self._loops:
            # Not cancelled: a claim whose answer nobody waits for would leave its generations without a recorder.
            await asyncio.wait(self._loops)
        unfinished = [recording for recording in self._recordings.values() if not recording.settling]
        settling = [self._tasks[recording.id] for recording in self._recordings.values() if recording.settling]
        await end([self._tasks[recording.id] for recording in unfinished])
        if settling:
            await asyncio.wait(settling, timeout=5)
        await self._store([recording for recording in unfinished if not recording.settled.is_set()], release=True)

    def start(self, generation: Generation) -> None:
        """Record a generation whose lease this recorder holds, and whose row is committed."""
        if generation.pk in self._recordings:
            return
        recording = Recording(generation, self._connect, self._note_begun)
        self._recordings[recording.id] = recording
        self._tasks[recording.id] = asyncio.create_task(self._record(recording))

    async def stop(self, generation_id: uuid.UUID) -> bool:
        """Cancel a generation that is recorded here. False when it is not."""
        recording = self._recordings.get(generation_id)
        if recording is None:
            return False
        await recording.stop()
        return True

    def newest_seq(self, generation: Generation) -> int:
        """How far a generation has come: exactly where it is recorded here, otherwise as of its last snapshot."""
        recording = self._recordings.get(generation.pk)
        return max(generation.seq, recording.seq if recording is not None else 0)

    async def wait_submitted(self, generation_id: uuid.UUID, within_s: float) -> None:
        """Until the engine knows a generation that is recorded here."""
        recording = self._recordings.get(generation_id)
        if recording is not None:
            await _wait(recording.submitted, within_s)

    async def wait_settled(self, generation_id: uuid.UUID, within_s: float) -> None:
        """Until the result is committed, as far as this process can know; ``within_s`` at most."""
        recording = self._recordings.get(generation_id)
        await (_wait(recording.settled, within_s) if recording is not None else asyncio.sleep(within_s))

    async def _record(self, recording: Recording) -> None:
        try:
            outcome = await recording.listen()
            recording.settling = True
            await self._settle(recording, outcome)
        except asyncio.CancelledError:
            raise
        except Exception:
            # The lease runs out, and whoever sweeps next tries again.
            logger.exception("generation %s: the recorder failed", recording.id)
        finally:
            recording.submitted.set()
            self._recordings.pop(recording.id, None)
            self._tasks.pop(recording.id, None)

    async def _settle(self, recording: Recording, outcome: journal.Outcome) -> None:
        snapshot = recording.snapshot()
        for pause in (*SETTLE_RETRY_S, None):
            try:
                committed = await database_sync_to_async(journal.settle)(snapshot, outcome, self.owner)
                break
            except Exception as error:
                if pause is None:
                    raise
                logger.warning("generation %s: settlement failed, trying again: %r", recording.id, error)
                await asyncio.sleep(pause)
        if not committed:
            logger.info("generation %s: another recorder took over", recording.id)
            return
        recording.settled.set()
        await recording.acknowledge(snapshot.seq)

    def _note_begun(self, recording: Recording) -> None:
        self._begun.add(recording.id)
        self._something_begun.set()

    async def _keep(self) -> None:
        """Store every recording every SNAPSHOT_S, and one that has just begun at once."""
        next_round = time.monotonic() + SNAPSHOT_S
        while not self._closing.is_set():
            await _wait(self._something_begun, max(0.0, next_round - time.monotonic()))
            self._something_begun.clear()
            begun, self._begun = self._begun, set()
            if time.monotonic() >= next_round:
                next_round = time.monotonic() + SNAPSHOT_S
                begun = set(self._recordings)
            await self._store([self._recordings[each] for each in begun if each in self._recordings])

    async def _store(self, recordings: Collection[Recording], *, release: bool = False) -> None:
        recordings = [recording for recording in recordings if not recording.settling]
        if not recordings:
            return
        snapshots = [recording.snapshot() for recording in recordings]
        write = database_sync_to_async(journal.write_snapshots)
        try:
            lost, stopping = await write(snapshots, self.owner, release=release)
        except DatabaseError:
            logger.exception("%d snapshots were not stored", len(snapshots))
            return
        for recording, snapshot in zip(recordings, snapshots, strict=True):
            if recording.id in lost:
                self._abandon(recording)
                continue
            await recording.acknowledge(snapshot.seq)
            if recording.id in stopping and not recording.stop_asked:
                await recording.stop()

    def _abandon(self, recording: Recording) -> None:
        """Another recorder holds the lease, or the row is final or gone."""
        task = self._tasks.get(recording.id)
        if task is not None and not recording.settling:
            logger.info("generation %s: the lease is lost", recording.id)
            task.cancel()

    async def _sweep(self) -> None:
        while not self._closing.is_set():
            try:
                for generation in await database_sync_to_async(lease.claim_abandoned)(self.owner):
                    if generation.pk not in self._recordings:
                        logger.info("generation %s: taken over at event %d", generation.pk, generation.seq)
                    self.start(generation)
            except DatabaseError:
                logger.exception("the sweep failed")
            await _wait(self._closing, SWEEP_S)


async def _wait(event: asyncio.Event, within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return


_recorder: Recorder | None = None


def current() -> Recorder:
    """This process's recorder. Raises RuntimeError where no server runs."""
    if _recorder is None:
        raise RuntimeError("No recorder runs in this process: it starts with the web server.")
    return _recorder


async def start_up() -> None:
    """Run with the server's start."""
    global _recorder
    _recorder = Recorder(connections.get_client)
    await _recorder.open()


async def shut_down() -> None:
    """Run when the server stops, before the engines' clients are closed."""
    global _recorder
    if _recorder is not None:
        await _recorder.close()
        _recorder = None
