"""No process outlives the benchmark that started it, even where the benchmark is killed (Linux). See prctl(2)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Runs in the child, in place of a preexec_fn: between fork and exec a process with threads may lock up. The signal
# stays set across the exec; a parent that is gone before it was set is seen by its id.
_ENDS_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def ends_with_us(command: Sequence[str]) -> list[str]:
    """``command`` for a child that gets SIGTERM as soon as the thread that starts it is gone; its id stays the same."""
    return [sys.executable, "-I", "-S", "-c", _ENDS_WITH_PARENT, str(os.getpid()), *command]
