"""One caller's connection: its subscriptions, and the frames they make."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from pagoda_inference import logs
from pagoda_inference.generation_log import Cursor, GenerationLog, SeqForgotten
from pagoda_inference.preparation import InvalidCommand
from pagoda_inference.protocol import (
    Acknowledge,
    Attach,
    Cancel,
    Command,
    Delivery,
    Detach,
    Error,
    Frame,
    Generate,
    Refused,
    Reply,
)
from pagoda_inference.service import Service

logger = logging.getLogger(__name__)

FRAME_BYTES = 1 << 20
"""About what a frame holds at most: a reader that is far behind catches up in several."""

MAX_REFUSALS = 1000
"""Refusals that may wait to be read, the only thing buffered for a caller: then no further command is taken from it."""

_FORGOTTEN = Error("seq_forgotten", "events after this seq were acknowledged or dropped: take the stored text instead")


class Connection:
    """Commands in through ``receive``, frames out through ``gather`` whenever ``wake`` is set.

    Nothing is buffered here but refusals: a frame is read from the generations' logs when the transport has room.
    """

    def __init__(self, service: Service) -> None:
        self.wake = asyncio.Event()
        self.input_ended = False
        self._gathered = asyncio.Event()
        self._service = service
        self._cursors: dict[int, Cursor] = {}
        self._ready: dict[int, None] = {}  # an ordered set of subscriptions with something to read
        self._refusals: list[Delivery] = []

    @property
    def over(self) -> bool:
        """The caller will send nothing more and nothing is left to tell it."""
        return self.input_ended and not self._cursors and not self._refusals

    async def room(self) -> None:
        """Wait while the caller leaves too many refusals unread."""
        while len(self._refusals) >= MAX_REFUSALS:
            self._gathered.clear()
            await self._gathered.wait()

    def receive(self, command: Command) -> None:
        """Carry out a command; what is wrong with it becomes a refusal in the next frame."""
        try:
            if isinstance(command, Generate):
                self._check_free(command.subscription)
                self._subscribe(command.subscription, self._service.generate(command), 0)
            elif isinstance(command, Attach):
                self._check_free(command.subscription)
                self._subscribe(command.subscription, self._service.attach(command), command.after_seq)
            elif isinstance(command, Detach):
                self._unsubscribe(command.subscription)
            elif isinstance(command, Acknowledge):
                self._service.acknowledge(command)
            elif isinstance(command, Cancel):
                self._service.cancel(command)
        except InvalidCommand as error:
            self.refuse(command, error.error)
        except SeqForgotten:
            self.refuse(command, _FORGOTTEN)
        except Exception as error:  # a fault of ours: it must not take the connection's other generations along
            logs.failure(logger, "command_failed", error, command=type(command).__name__)
            self.refuse(command, Error("unavailable", "the engine could not carry this out: its log has the reason"))

    def refuse(self, command: Command, error: Error) -> None:
        """Answer a command with a refusal."""
        name = str(command.__struct_config__.tag)
        self.refuse_by_name(getattr(command, "id", ""), name, getattr(command, "subscription", 0), error)

    def refuse_by_name(self, id: str, name: str, subscription: int, error: Error) -> None:
        """Answer a command of which only this could be read."""
        self._refusals.append(Delivery(subscription, (Refused(id, error, name),)))
        self.wake.set()

    def gather(self) -> Frame | None:
        """Everything there is to tell, up to about FRAME_BYTES; None when there is nothing."""
        self.wake.clear()
        deliveries, self._refusals = self._refusals, []
        self._gathered.set()
        room = FRAME_BYTES
        while self._ready and room > 0:
            number = next(iter(self._ready))
            del self._ready[number]
            replies, size = self._read(number, room)
            room -= size
            if replies:
                deliveries.append(Delivery(number, replies))
        if self._ready or self.over:
            self.wake.set()
        return Frame(tuple(deliveries)) if deliveries else None

    def close(self) -> None:
        """The connection is gone: end all subscriptions."""
        for number in list(self._cursors):
            self._unsubscribe(number)

    def _read(self, number: int, room: int) -> tuple[tuple[Reply, ...], int]:
        cursor = self._cursors[number]
        if cursor.log.refused is not None:
            self._unsubscribe(number)
            return (Refused(cursor.log.key[1], cursor.log.refused),), 0
        try:
            events, size = cursor.read(room)
        except SeqForgotten:
            self._unsubscribe(number)
            return (Refused(cursor.log.key[1], _FORGOTTEN, "attach"),), 0
        if cursor.at_end:
            self._unsubscribe(number)
        elif cursor.behind:
            self._ready[number] = None
        return tuple(events), size

    def _check_free(self, number: int) -> None:
        if number in self._cursors:
            raise InvalidCommand("invalid_request", f"subscription {number} is in use on this connection")

    def _subscribe(self, number: int, log: GenerationLog, after_seq: int) -> None:
        self._cursors[number] = log.open(after_seq, partial(self._on_news, number))

    def _unsubscribe(self, number: int) -> None:
        cursor = self._cursors.pop(number, None)
        self._ready.pop(number, None)
        if cursor is not None:
            cursor.log.close(cursor)
            self._service.left(cursor.log)

    def _on_news(self, number: int) -> None:
        self._ready[number] = None
        self.wake.set()
