"""What the tiers hold and what happened in them since the engine started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TierUsage:
    """Bytes in each tier."""

    host: int
    disk: int


@dataclass(slots=True)
class TierCounters:
    """Blocks of one tier. stored: copied into it. loaded: copied from it into the pool. dropped: lost to make room, in
    no tier below. failed: copies that went wrong."""

    stored: int = 0
    loaded: int = 0
    dropped: int = 0
    failed: int = 0
