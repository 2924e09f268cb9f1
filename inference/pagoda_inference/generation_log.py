"""A generation's events, append-only and numbered without gaps, kept until they are acknowledged.

Any number of cursors read the log, each at its own place; none has a buffer. A reader that is slow finds more events at
its next turn, and delays nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from pagoda_inference.protocol import Delta, Error, Event, Finished

EVENT_BYTES = 160
"""What an event costs besides its text and tokens: an estimate of the objects that hold it."""

Key = tuple[str, str]
"""(account, id): a generation's name. The same id under another account is another generation."""


def event_bytes(event: Event) -> int:
    """An estimate of the memory an event holds."""
    if isinstance(event, Delta):
        return EVENT_BYTES + 2 * len(event.text) + 8 * len(event.token_ids)
    return 2 * EVENT_BYTES


class SeqForgotten(Exception):
    """The events asked for were acknowledged or dropped."""


class Cursor:
    """One reader's place in a log. ``wake`` is called whenever there is something new to read."""

    __slots__ = ("log", "seq", "wake")

    def __init__(self, log: GenerationLog, seq: int, wake: Callable[[], None]) -> None:
        self.log = log
        self.seq = seq
        self.wake = wake

    @property
    def behind(self) -> bool:
        """Whether events wait to be read."""
        return self.seq < self.log.last_seq

    @property
    def at_end(self) -> bool:
        """Whether everything was read and nothing will follow."""
        return self.log.ended and not self.behind

    def read(self, max_bytes: int) -> tuple[list[Event], int]:
        """The next events, at least one if any waits, of about ``max_bytes`` at most, and their bytes.

        Raises SeqForgotten when they are gone.
        """
        events, size = self.log.events_after(self.seq, max_bytes)
        if events:
            self.seq = events[-1].seq
            self.log.trim()
        return events, size


class Ledger:
    """The bytes that all logs of one account hold together."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class GenerationLog:
    """The events of one generation that are not forgotten yet.

    last_seq: number of the newest event (0: none). forgotten: events up to this number are acknowledged; they stay in
    memory only for cursors that were already on their way to them. bytes: what the kept events hold. cancel_unheard:
    the generation is to end when its last reader goes. refused: why it was never begun.
    """

    __slots__ = (
        "_events",
        "_first",
        "_ledger",
        "bytes",
        "cancel_unheard",
        "cursors",
        "ended",
        "forgotten",
        "key",
        "last_seq",
        "refused",
    )

    def __init__(self, key: Key, ledger: Ledger, *, cancel_unheard: bool = False) -> None:
        self.key = key
        self.cancel_unheard = cancel_unheard
        self.cursors: set[Cursor] = set()
        self.last_seq = 0
        self.forgotten = 0
        self.bytes = 0
        self.ended = False
        self.refused: Error | None = None
        self._events: list[Event] = []
        self._first = 1  # seq of _events[0]
        self._ledger = ledger

    def append(self, event: Event) -> None:
        """Add the next event. Its seq is ``last_seq + 1``."""
        assert event.seq == self.last_seq + 1, f"event {event.seq} after {self.last_seq}"
        assert not self.ended, "an event after the last"
        self._events.append(event)
        self.last_seq = event.seq
        self._hold(event_bytes(event))
        self.ended = isinstance(event, Finished)
        self._wake_all()

    def refuse(self, error: Error) -> None:
        """The generation was never begun: every reader is told why."""
        self.refused = error
        self.ended = True
        self._wake_all()

    def open(self, after_seq: int, wake: Callable[[], None]) -> Cursor:
        """A new reader of the events after ``after_seq``. Raises SeqForgotten when some of them are gone."""
        if after_seq < self.forgotten:
            raise SeqForgotten
        cursor = Cursor(self, after_seq, wake)
        self.cursors.add(cursor)
        if cursor.behind or self.ended:
            wake()
        return cursor

    def close(self, cursor: Cursor) -> None:
        """The reader is gone."""
        self.cursors.discard(cursor)
        self.trim()

    def acknowledge(self, seq: int) -> bool:
        """Forget the events up to ``seq``; those beyond the newest are not forgotten. True when nothing is left."""
        self.forgotten = max(self.forgotten, min(seq, self.last_seq))
        self.trim()
        return self.ended and self.forgotten == self.last_seq

    def drop(self) -> None:
        """Forget everything at once, also what a slow reader had still to read."""
        self.forgotten = self.last_seq
        self._discard_up_to(self.last_seq)
        self._wake_all()

    def events_after(self, seq: int, max_bytes: int) -> tuple[list[Event], int]:
        """See Cursor.read."""
        if seq + 1 < self._first:
            raise SeqForgotten
        events: list[Event] = []
        size = 0
        for event in islice(self._events, seq + 1 - self._first, None):
            size += event_bytes(event)
            if events and size > max_bytes:
                size -= event_bytes(event)
                break
            events.append(event)
        return events, size

    def trim(self) -> None:
        """Free what is acknowledged and behind every reader."""
        if self._first <= self.forgotten:
            self._discard_up_to(min([self.forgotten, *(cursor.seq for cursor in self.cursors)]))

    def _discard_up_to(self, seq: int) -> None:
        count = min(seq + 1 - self._first, len(self._events))
        if count > 0:
            self._hold(-sum(map(event_bytes, self._events[:count])))
            del self._events[:count]
            self._first += count

    def _hold(self, size: int) -> None:
        self.bytes += size
        self._ledger.bytes += size

    def _wake_all(self) -> None:
        for cursor in self.cursors:
            cursor.wake()
