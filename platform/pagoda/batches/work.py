"""The worker's end as its tasks see it: a runner of batches stops, so that a restart need not wait for hours."""

from __future__ import annotations

import mmap
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.signals import worker_shutting_down

_stopping = mmap.mmap(-1, 1)
"""Memory that the worker shares with the children it forks: what is written in the parent is seen there."""

_told = bytearray(1)
"""Whether this process alone was asked to end."""


def listen() -> None:
    """Run once, when the application is ready."""
    worker_shutting_down.connect(_stop, weak=False)


def is_stopping() -> bool:
    """Whether the worker was asked to end, or this child of it."""
    return _stopping[0] != 0 or _told[0] != 0


@contextmanager
def heeding_sigterm() -> Iterator[None]:
    """While the block runs, a SIGTERM to this process is a wish, not its end: who stops a service may send it to all
    its processes at once. The second one is what it always was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heed(*_: Any) -> None:
        _told[0] = 1
        signal.signal(signal.SIGTERM, before)

    before = signal.signal(signal.SIGTERM, heed)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        _told[0] = 0


def _stop(**_: Any) -> None:
    _stopping[0] = 1
