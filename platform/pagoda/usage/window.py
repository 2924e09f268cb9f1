"""Requests and tokens of the last minute: pure arithmetic over what a meter's row stores. Times in ms since 1970."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

WINDOW_MS = 60_000
SLOT_MS = 1_000

Kind = Literal["requests", "tokens"]


@dataclass(slots=True)
class Slot:
    """What came between ``first`` and ``last``, a second at most. It counts until all of it is a minute old."""

    first: int
    last: int
    requests: int
    tokens: int

    def count(self, kind: Kind) -> int:
        return self.requests if kind == "requests" else self.tokens


class Window:
    """A sliding minute: no 60 seconds ever hold more than was let through. At most 61 slots, the oldest first."""

    def __init__(self, stored: Iterable[list[int]], now: int) -> None:
        """stored: what ``store`` gave; what has passed is dropped."""
        self.slots = [slot for row in stored if (slot := Slot(*row)).last + WINDOW_MS > now]

    def store(self) -> list[list[int]]:
        """Rows of [first, last, requests, tokens], for JSON."""
        return [[slot.first, slot.last, slot.requests, slot.tokens] for slot in self.slots]

    def sum(self, kind: Kind) -> int:
        return sum(slot.count(kind) for slot in self.slots)

    def add(self, now: int, *, requests: int = 0, tokens: int = 0) -> None:
        if not self.slots or now - self.slots[-1].first >= SLOT_MS:
            self.slots.append(Slot(now, now, 0, 0))
        newest = self.slots[-1]
        # Another machine's clock may be behind.
        newest.first, newest.last = min(newest.first, now), max(newest.last, now)
        newest.requests += requests
        newest.tokens += tokens

    def correct(self, then: int, *, requests: int = 0, tokens: int = 0) -> None:
        """Change what was added at ``then`` by these differences; nothing where that has passed."""
        slot = next((slot for slot in self.slots if slot.first <= then <= slot.last), None)
        if slot is not None:
            slot.requests = max(0, slot.requests + requests)
            slot.tokens = max(0, slot.tokens + tokens)

    def wait_ms(self, kind: Kind, at_most: int, now: int) -> int:
        """Until the sum is ``at_most`` (0 or more), if nothing is added."""
        excess = self.sum(kind) - at_most
        wait = 0
        for slot in self.slots:
            if excess <= 0:
                break
            excess -= slot.count(kind)
            wait = max(wait, slot.last + WINDOW_MS - now)
        return wait
