"""Knowing that `make` gave up, even where it alone was interrupted or killed.

A Ctrl-C on a terminal reaches `make` and everything under it. A signal sent to `make` alone does not: on SIGINT it only
stops catching the signal and waits for its recipe to end, which would be never; on SIGKILL it is just gone.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


class ParentWatch:
    """Watches the process that started this one, from its construction on."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._caught_interrupts = self._catches_interrupts()

    def gave_up(self) -> bool:
        """Whether the parent has ended, or no longer catches the SIGINT that it caught before."""
        return os.getppid() != self._pid or (self._caught_interrupts and not self._catches_interrupts())

    def _catches_interrupts(self) -> bool:
        """From the mask of caught signals in proc(5); False where there is no /proc."""
        try:
            lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        except OSError:
            return False
        masks = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")]
        return any(mask >> (signal.SIGINT - 1) & 1 for mask in masks)
