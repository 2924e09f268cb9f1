"""What is asked of the engine's thread from others: one queue, carried out between steps or beside one."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from pagoda_inference import logs

logger = logging.getLogger(__name__)
T = TypeVar("T")


class EngineStopped(Exception):
    """The loop has ended: nothing can be asked of it."""


@dataclass(frozen=True, slots=True)
class _Command:
    """beside_step: it may be carried out while a step runs, whose sequences and blocks it leaves alone."""

    function: Callable[[], object]
    beside_step: bool


class Commands:
    """``put``, ``call`` and ``promise`` are for any thread, the rest for the engine's. Commands keep their order.

    debug: what a command raises is raised, not only logged.
    """

    def __init__(self, *, debug: bool = False) -> None:
        self._queue: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._held: _Command | None = None
        """The first one that has to wait for the step in flight to end."""
        self._debug = debug
        self._ended = False

    def put(self, function: Callable[[], object], *, beside_step: bool = False) -> None:
        self._queue.put(_Command(function, beside_step))

    def call(self, function: Callable[[], T], *, beside_step: bool = False) -> Future[T]:
        """The future has what ``function`` returned or raised, or EngineStopped."""
        future: Future[T] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            if self._ended:
                future.set_exception(EngineStopped())
                return
            try:
                future.set_result(function())
            except Exception as error:
                logs.failure(logger, "command_failed", error)
                future.set_exception(error)

        self.put(answer, beside_step=beside_step)
        if self._ended:
            self.carry_out()
        return future

    def promise(self, function: Callable[[Future[T]], None], *, beside_step: bool = False) -> Future[T]:
        """Begin something that gives its answer later; what fails before it was begun fails the answer, too."""
        answer: Future[T] = Future()

        def begun(asked: Future[None]) -> None:
            error = asked.exception()
            if error is not None:
                answer.set_exception(error)

        self.call(lambda: function(answer), beside_step=beside_step).add_done_callback(begun)
        return answer

    def carry_out(self) -> None:
        """All that are there, between two steps."""
        while (command := self._next()) is not None:
            self.guarded(command.function)

    def carry_out_beside_step(self) -> None:
        """Those that are there, up to the first that has to wait for the step in flight."""
        while (command := self._next()) is not None:
            if not command.beside_step:
                self._held = command
                return
            self.guarded(command.function)

    def wait(self, timeout_s: float | None = None) -> None:
        """Carry out the next one, between two steps; wait for it, at most so long."""
        try:
            command = self._next() or self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return
        self.guarded(command.function)

    def end(self) -> None:
        """The loop is over: whoever asked or will ask hears so."""
        self._ended = True
        self.carry_out()

    def guarded(self, function: Callable[[], object]) -> None:
        """Carry out one thing that must not end the loop."""
        try:
            function()
        except Exception as error:
            logs.failure(logger, "command_failed", error)
            if self._debug:
                raise

    def _next(self) -> _Command | None:
        if self._held is not None:
            held, self._held = self._held, None
            return held
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None
