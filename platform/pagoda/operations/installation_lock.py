"""One `up` per PAGODA_HOME at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class AlreadyRunning(Exception):
    """Another process runs this installation; ``pid`` is its id (None where it has not been written yet)."""

    def __init__(self, home: Path, pid: int | None) -> None:
        who = f" (process {pid})" if pid else ""
        super().__init__(f"Pagoda already runs from {home}{who}. Stop it first, or set another PAGODA_HOME.")
        self.pid = pid


@contextmanager
def installation_lock(home: Path) -> Iterator[None]:
    """Held while the block runs, and given back by the kernel however the process ends. Raises AlreadyRunning."""
    path = home / "run" / "up.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            text = file.read().strip()
            raise AlreadyRunning(home, int(text) if text.isdigit() else None) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
