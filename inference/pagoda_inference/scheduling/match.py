"""What a waiting request found in the prefix index, kept until it comes or something of it is gone."""

from __future__ import annotations

from pagoda_inference.kv.entry import Entry


class Match:
    """run: the entries found. needed, asleep: what admission made of it last: blocks that the account has to have room
    for, and those of them that are cached (in the pool or below) and could be active by the next time.
    """

    __slots__ = ("asleep", "needed", "run")

    def __init__(self, run: list[Entry]) -> None:
        self.run = run
        self.needed = 0
        self.asleep = 0

    def is_valid(self) -> bool:
        """Whether every entry is still somewhere."""
        return all(entry.block is not None or entry.stored for entry in self.run)

    def awake(self, most: int) -> int:
        """Blocks of the first ``most`` that are active, so that they cost nothing."""
        return sum(1 for entry in self.run[:most] if entry.block is not None and entry.block.references)
