"""The copy thread: jobs run one after the other beside the engine's steps, and report to the engine's thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

Work = Callable[[], None]
Done = Callable[[BaseException | None], None]
"""Called with what the work raised, or None."""


class _Job:
    __slots__ = ("done", "error", "work")

    def __init__(self, work: Work, done: Done) -> None:
        self.work = work
        self.done = done
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error


class Copier:
    """Jobs in order on one thread of its own, which starts with the first.

    ``submit``, ``poll``, ``wait`` and ``close`` are for one thread, the engine's; only ``work`` runs on the other, and
    ``notify`` is called there after each job.
    """

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        self.notify = notify
        self.in_flight = 0
        """Jobs submitted whose ``done`` was not called yet."""
        self._waiting: deque[_Job] = deque()
        self._ended: deque[_Job] = deque()
        self._unfinished = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def submit(self, work: Work, done: Done) -> None:
        """Run ``work`` after everything submitted before; ``done`` is called by a later ``poll``."""
        self.in_flight += 1
        with self._changed:
            self._waiting.append(_Job(work, done))
            self._unfinished += 1
            self._changed.notify_all()
        self._start()

    def poll(self) -> None:
        """Call ``done`` of the jobs that have ended, in order of submission."""
        while self._ended:
            job = self._ended.popleft()
            self.in_flight -= 1
            job.done(job.error)

    def wait(self, timeout_s: float) -> bool:
        """Wait until every job has ended. False when time was up first. Calls no ``done``."""
        end = time.monotonic() + timeout_s
        with self._changed:
            while self._unfinished:
                if (left := end - time.monotonic()) <= 0:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """Run what is still waiting, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            # A daemon: a disk that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name="kv-copies", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closing:
                        return
                    self._changed.wait()
            self._run_next()
            self.notify()

    def _run_next(self) -> None:
        job = self._waiting.popleft()
        job.run()
        self._ended.append(job)
        del job  # what it holds is the engine's now
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()


class ManualCopier(Copier):
    """A Copier for tests: jobs run when they are released, on the caller's thread."""

    def release(self, count: int | None = None) -> None:
        """Run the next ``count`` jobs; all of them, and what they bring about, without a count."""
        while self._waiting and count != 0:
            self._run_next()
            count = None if count is None else count - 1

    def abandon(self) -> None:
        """The process died: what waits never runs, and nobody hears of it."""
        self._waiting.clear()
        self._ended.clear()
        self._unfinished = self.in_flight = 0

    def wait(self, timeout_s: float) -> bool:
        self.release()
        return True

    def close(self) -> None:
        self.release()

    def _start(self) -> None:
        pass
