"""What goes wrong below the pool: a line in the log, and a sentence for the operator as long as it lasts."""

from __future__ import annotations

import logging
import time

from pagoda_inference import logs

logger = logging.getLogger(__name__)

_LOG_EVERY_S = 60.0
ALERT_S = 600.0
"""How long after its last failure a copy counts as one that fails."""


class Faults:
    """Of one engine's tiers, since its start."""

    def __init__(self) -> None:
        self.disk_off = False
        """A disk tier was asked for, and its folder cannot be had."""
        self._next_log = 0.0
        self._failed_at: float | None = None
        self._reason = ""

    def copy_failed(self, error: BaseException) -> None:
        """Logged once a minute at most: what fails once fails every time."""
        now = time.monotonic()
        reason = error.strerror if isinstance(error, OSError) else None
        self._failed_at, self._reason = now, reason or type(error).__name__
        if now >= self._next_log:
            self._next_log = now + _LOG_EVERY_S
            logs.failure(logger, "tier_copy_failed", error, reason=reason)

    def alerts(self) -> tuple[str, ...]:
        """What an operator should look at now, a sentence each."""
        found = []
        if self.disk_off:
            found.append(
                "The disk tier is off because its folder cannot be had: the log says why (disk_tier_off). "
                "Start the engine again when that is mended."
            )
        if self._failed_at is not None and time.monotonic() < self._failed_at + ALERT_S:
            found.append(
                f"Copies of KV between the pool, the host and the disk fail ({self._reason}), so that it is computed "
                "again: see to the memory and the disk of the engine's machine."
            )
        return tuple(found)
