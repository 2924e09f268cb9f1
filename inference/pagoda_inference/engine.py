"""The engine loop: commands in, one scheduled step of the model at a time, events out.

It runs in a thread of its own and owns the scheduler, the pool and the model. Others reach it through a queue, between
steps; what happened in a step leaves it in one call of ``deliver``. Nothing that a request carries may end it.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from pagoda_inference import logs
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog, Key
from pagoda_inference.kv import invariants
from pagoda_inference.kv.accounts import AccountsRefused
from pagoda_inference.model.backend import Backend, ChunkError
from pagoda_inference.protocol import AccountsSet, Error, Event, Finished, FinishReason, PoolReport, SetAccounts
from pagoda_inference.scheduling.scheduler import RequestRefused, Scheduler
from pagoda_inference.step_runner import StepRunner

logger = logging.getLogger(__name__)
T = TypeVar("T")

Outcome = tuple[GenerationLog, Event | Error]
"""An event of a generation, or why it was refused before it had any."""

STALLED_WAIT_S = 0.02
"""How long the loop waits for a command when there is work but none of it can run now."""

_STOPPING = Error("engine_stopping", "the engine is stopping: send the request again when it is back")
_MODEL_ERROR = Error("model_error", "the model failed on this request; the engine's log has the reason under its id")


class EngineStopped(Exception):
    """The loop has ended: nothing can be asked of it."""


@dataclass(slots=True)
class Observer:
    """What is measured as it happens; metrics replace these with their own. Called on the engine's thread."""

    step: Callable[[float, int, int], None] = lambda seconds, chunks, tokens: None
    finished: Callable[[Finished], None] = lambda event: None


class Engine:
    """One model, its pool and its scheduler, driven by ``run`` on one thread. Other methods may be called from any."""

    def __init__(
        self,
        backend: Backend,
        scheduler: Scheduler,
        *,
        instance: str,
        deliver: Callable[[list[Outcome]], None],
        observer: Observer | None = None,
        debug: bool = False,
    ) -> None:
        self.instance = instance
        self.steps = 0
        self._backend = backend
        self._runner = StepRunner(backend)
        self._scheduler = scheduler
        self._deliver = deliver
        self._observer = observer or Observer()
        self._debug = debug
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._live: dict[Key, Generation] = {}
        self._outcomes: list[Outcome] = []
        self._stopping = False
        self._ended = False

    # --- from any thread ----------------------------------------------------------------------------------------------

    def submit(self, generation: Generation) -> None:
        """Queue a generation. A refusal comes back as an outcome."""
        self._commands.put(lambda: self._submit(generation))

    def cancel(self, key: Key) -> None:
        """End a generation by the end of the step in flight. Unknown and ended ones are ignored."""
        self._commands.put(lambda: self._cancel(key))

    def set_accounts(self, message: SetAccounts) -> Future[AccountsSet]:
        """Replace all accounts, between two steps."""
        return self._call(lambda: self._set_accounts(message))

    def report(self) -> Future[PoolReport]:
        """The pool between two steps."""
        return self._call(self._report)

    def stop(self) -> None:
        """End the loop: what runs or waits is finished with ``engine_stopping``."""
        self._commands.put(self._stop)

    def _call(self, function: Callable[[], T]) -> Future[T]:
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

        self._commands.put(answer)
        if self._ended:
            self._drain()
        return future

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until ``stop``. Blocks; call it on the engine's thread. Raises only when the engine itself is broken."""
        try:
            while not self._stopping:
                self._take_commands()
                if self._stopping:
                    break
                if self._scheduler.has_work:
                    self._step_guarded()
                self._flush()
        finally:
            for generation in list(self._live.values()):
                self._end(generation, "error", blocks_freed=0, error=_STOPPING)
            self._flush()
            self._ended = True
            self._drain()

    def _take_commands(self) -> None:
        """All commands that wait; when there is nothing else to do, the next one."""
        if not self._scheduler.has_work:
            self._flush()
            self._carry_out(self._commands.get())
        self._drain()

    def _drain(self) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            self._carry_out(command)

    def _carry_out(self, command: Callable[[], None]) -> None:
        try:
            command()
        except Exception as error:
            logs.failure(logger, "command_failed", error)
            if self._debug:
                raise

    def _flush(self) -> None:
        if self._outcomes:
            outcomes, self._outcomes = self._outcomes, []
            self._deliver(outcomes)

    def _step_guarded(self) -> None:
        try:
            self._step()
        except Exception as error:
            # The scheduler's own books may be wrong now. Give up what runs rather than the engine.
            logs.failure(logger, "engine_step_failed", error)
            if self._debug:
                raise
            for generation in list(self._live.values()):
                freed = self._scheduler.abort(generation.request)
                self._end(generation, "error", blocks_freed=freed, error=_MODEL_ERROR)

    def _step(self) -> None:
        begin = time.monotonic()
        step = self._scheduler.schedule(begin)
        for request in step.admitted:
            generation = self._live[request.account, request.id]
            self._emit(generation, generation.started())
        for request in step.exhausted:
            self._finish(self._live[request.account, request.id], "length")
        if not step.chunks:
            if not (step.admitted or step.exhausted):
                self._flush()
                self._wait_for_command()
            return
        results = self._runner.run(step)
        now = time.monotonic()
        for sequence, result in self._scheduler.complete(step, results, now):
            request = sequence.request
            generation = self._live[request.account, request.id]
            if isinstance(result, ChunkError):
                self._finish(generation, "error", error=_MODEL_ERROR)
                logs.failure(logger, "generation_failed", result, id=request.id, account=request.account)
            else:
                self._advance(generation, result)
        self.steps += 1
        self._observer.step(now - begin, len(step.chunks), sum(chunk.count for chunk in step.chunks))
        if self._debug:
            self._check()

    def _check(self) -> None:
        """Debug builds: the pool's invariants hold and every block that is held is held by a running request."""
        sequences = [sequence for request in self._scheduler.running for sequence in request.sequences]
        invariants.check(self._scheduler.pool, [s.table for s in sequences if s.table is not None])

    def _wait_for_command(self) -> None:
        try:
            command = self._commands.get(timeout=STALLED_WAIT_S)
        except queue.Empty:
            return
        self._carry_out(command)

    # --- one generation -----------------------------------------------------------------------------------------------

    def _submit(self, generation: Generation) -> None:
        request = generation.request
        try:
            self._scheduler.add(request)
        except RequestRefused as refusal:
            self._outcomes.append((generation.log, refusal.error))
            return
        except Exception as error:
            logs.failure(logger, "submit_failed", error, id=request.id, account=request.account)
            self._outcomes.append((generation.log, _MODEL_ERROR))
            return
        self._live[request.account, request.id] = generation

    def _cancel(self, key: Key) -> None:
        generation = self._live.get(key)
        if generation is not None:
            self._abort(generation, "cancelled")

    def _advance(self, generation: Generation, token: int) -> None:
        try:
            delta, reason = generation.advance(token)
        except Exception as error:
            request = generation.request
            logs.failure(logger, "generation_failed", error, id=request.id, account=request.account)
            self._finish(generation, "error", error=_MODEL_ERROR)
            return
        self._emit(generation, delta)
        if reason is not None:
            self._finish(generation, reason)

    def _finish(self, generation: Generation, reason: FinishReason, *, error: Error | None = None) -> None:
        """The request is done: its blocks stay findable."""
        freed = self._scheduler.finish(generation.request)
        self._end(generation, reason, blocks_freed=freed, error=error)

    def _abort(self, generation: Generation, reason: FinishReason, *, error: Error | None = None) -> None:
        freed = self._scheduler.abort(generation.request)
        self._end(generation, reason, blocks_freed=freed, error=error)

    def _end(
        self, generation: Generation, reason: FinishReason, *, blocks_freed: int, error: Error | None = None
    ) -> None:
        """Emit the last events of a generation that the scheduler has let go."""
        request = generation.request
        del self._live[request.account, request.id]
        if reason in ("cancelled", "length"):
            self._emit_held_text(generation)
        finished = generation.finished(reason, time.monotonic(), blocks_freed=blocks_freed, error=error)
        self._emit(generation, finished)
        self._observer.finished(finished)
        logs.generation_finished(logger, request, finished)

    def _emit_held_text(self, generation: Generation) -> None:
        try:
            rest = generation.held_text()
        except Exception as error:
            request = generation.request
            logs.failure(logger, "generation_failed", error, id=request.id, account=request.account)
            return
        if rest is not None:
            self._emit(generation, rest)

    def _emit(self, generation: Generation, event: Event) -> None:
        self._outcomes.append((generation.log, event))

    # --- accounts and reports -----------------------------------------------------------------------------------------

    def _set_accounts(self, message: SetAccounts) -> AccountsSet:
        accounts = self._scheduler.pool.accounts
        if message.version <= accounts.version:
            return AccountsSet(accounts.version, applied=False)
        try:
            ended = self._scheduler.set_accounts(message.accounts, message.version)
        except AccountsRefused as refusal:
            return AccountsSet(accounts.version, applied=False, error=refusal.error)
        for request, error in ended:
            generation = self._live.get((request.account, request.id))
            if generation is not None:
                self._end(generation, "error", blocks_freed=0, error=error)
        logs.event(logger, "accounts_set", version=message.version, accounts=len(message.accounts), ended=len(ended))
        return AccountsSet(accounts.version, applied=True)

    def _report(self) -> PoolReport:
        report = self._scheduler.report()
        return PoolReport(
            instance=self.instance,
            step=self.steps,
            time=time.time(),
            total=report.total,
            free=report.free,
            block_size=self._backend.block_size,
            bytes_per_block=self._backend.bytes_per_block,
            accounts_version=self._scheduler.pool.accounts.version,
            accounts=tuple(report.accounts),
        )

    def _stop(self) -> None:
        self._stopping = True
        for generation in list(self._live.values()):
            self._abort(generation, "error", error=_STOPPING)
