"""No process outlives the one that started Pagoda (Linux; elsewhere the supervisor alone sees to it).

The kernel tells the supervisor when we die (a parent-death signal), and hands us what the supervisor leaves behind when
*it* dies (we are the subreaper), so nothing is left in either case. See prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

# Runs in the child, in place of a preexec_fn: between fork and exec a process with threads may lock up.
_ENDS_WITH_PARENT = """
import ctypes, os, runpy, signal, sys
parent, module = int(sys.argv[1]), sys.argv[2]
del sys.argv[1:3]
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
if os.getppid() == parent:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def python_module_that_ends_with_us(module: str, *arguments: str) -> list[str]:
    """The command `python -m module arguments`, for a child that gets SIGTERM as soon as this process is gone."""
    return [sys.executable, "-c", _ENDS_WITH_PARENT, str(os.getpid()), module, *arguments]


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, parents before their children."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, tasks.read_text().split()):
                found += [child, *descendants(child)]
    return found


def reap_orphans(*, except_for: int) -> list[int]:
    """Collect dead processes that this one was handed; ``except_for``: its own child, whose end others wait for.

    Returns their ids.
    """
    reaped = []
    for tasks in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, tasks.read_text().split()):
                if child != except_for and os.waitpid(child, os.WNOHANG)[0]:
                    reaped.append(child)
    return reaped


def end_descendants(timeout_s: float = 5.0) -> list[int]:
    """SIGTERM, then SIGKILL, to whatever is left below this process. Returns the ids of what was there."""
    left = descendants(os.getpid())
    if not left:
        return []
    _signal(left, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal(descendants(os.getpid()), signal.SIGKILL)
    while _reap():
        time.sleep(0.01)
    return left


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _reap() -> bool:
    """Collect dead children; whether living ones remain."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
