"""Main memory that processes hold, from /proc."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(process: int) -> int:
    """Of a process and its descendants; pages that they share count once (Pss). Linux."""
    return sum(_pss(each) for each in [process, *_descendants(process)])


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text().split():
            found += [int(child), *_descendants(int(child))]
    return found


def _pss(process: int) -> int:
    """0 for one that has ended meanwhile."""
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
