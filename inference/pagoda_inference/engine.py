"""The engine loop: commands in, one scheduled step of the model at a time, events out.

It runs in a thread of its own and owns the scheduler, the pool and the model. Others reach it through a queue, between
steps; what happened in a step leaves it in one call of ``deliver``. Nothing that a request carries may end it.

Where the model runs on a device beside the host, the host does meanwhile what does not depend on the step's results.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from pagoda_inference import failures, logs
from pagoda_inference.beam_generation import BeamGeneration
from pagoda_inference.commands import Commands
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog, Key
from pagoda_inference.model.backend import Backend, Candidates, ChunkError
from pagoda_inference.pace import Pace
from pagoda_inference.pool_desk import PoolDesk
from pagoda_inference.protocol import (
    AccountsSet,
    Error,
    Event,
    Finished,
    FinishReason,
    PoolReport,
    Publish,
    Published,
    Purge,
    Purged,
    SetAccounts,
)
from pagoda_inference.rates import Rates
from pagoda_inference.sampled_generation import SampledGeneration
from pagoda_inference.scheduling.scheduler import Produced, RequestRefused, Scheduler
from pagoda_inference.scheduling.sequence import Request, Sequence
from pagoda_inference.scheduling.step import Step
from pagoda_inference.speculation.speculation import Speculation
from pagoda_inference.step_runner import StepRunner

logger = logging.getLogger(__name__)

Outcome = tuple[GenerationLog, Event | Error]
"""An event of a generation, or why it was refused before it had any."""

STALLED_WAIT_S = 0.02
"""How long the loop waits for a command when there is work but none of it can run now."""

_STOPPING = Error("engine_stopping", "the engine is stopping: send the request again when it is back")
_IN_USE = Error("invalid_request", "a generation with this id is still running: attach to it, or choose another id")


@dataclass(slots=True)
class Observer:
    """What is measured as it happens; metrics replace these with their own. Called on the engine's thread."""

    step: Callable[[Step, float], None] = lambda step, seconds: None
    finished: Callable[[Finished], None] = lambda event: None


class Engine:
    """One model, its pool and its scheduler, driven by ``run`` on one thread. Other methods may be called from any.

    pace: bounds what a step takes on; by default nothing is bounded. speculation: see ``StepRunner``.
    """

    def __init__(
        self,
        backend: Backend,
        scheduler: Scheduler,
        *,
        instance: str,
        deliver: Callable[[list[Outcome]], None],
        observer: Observer | None = None,
        pace: Pace | None = None,
        speculation: Speculation | None = None,
        debug: bool = False,
    ) -> None:
        self.instance = instance
        self.steps = 0
        self._backend = backend
        self._runner = StepRunner(backend, speculation)
        self.pace = pace or Pace(0.0, Rates(0.0, 0.0, 0.0))
        self._scheduler = scheduler
        self._deliver = deliver
        self._observer = observer or Observer()
        self._debug = debug
        self._commands = Commands(debug=debug)
        self._live: dict[Key, Generation] = {}
        self._desk = PoolDesk(scheduler, end=self._end_refused)
        self._outcomes: list[Outcome] = []
        self._taken: list[tuple[Step, float]] = []
        """Steps whose results were taken over, and their seconds: nobody has been told of them yet."""
        self._idle = False
        """Nothing of the work could be done in the last turn."""
        self._stopping = False

    # --- from any thread ----------------------------------------------------------------------------------------------

    def submit(self, generation: Generation) -> None:
        """Queue a generation. A refusal comes back as an outcome."""
        self._commands.put(lambda: self._submit(generation), beside_step=True)

    def cancel(self, key: Key) -> None:
        """End a generation by the end of the step in flight. Unknown and ended ones are ignored."""
        self._commands.put(lambda: self._cancel(key))

    def set_accounts(self, message: SetAccounts) -> Future[AccountsSet]:
        """Replace all accounts, between two steps."""
        return self._commands.call(lambda: self._desk.set_accounts(message))

    def publish(self, message: Publish) -> Future[Published]:
        """Replace all published prefixes; done when those that are new are computed."""
        return self._commands.promise(lambda answer: self._desk.publish(message, answer))

    def purge(self, message: Purge) -> Future[Purged]:
        """Conversations were deleted: what only they used is found no more; done when it is gone from every tier."""
        return self._commands.promise(lambda answer: self._desk.purge(message, answer), beside_step=True)

    def report(self) -> Future[PoolReport]:
        """The pool as it is: every block is somebody's or free, also while a step runs."""
        return self._commands.call(
            lambda: self._desk.report(self.instance, self.steps, self._backend), beside_step=True
        )

    def wake(self) -> None:
        """Something happened beside the loop, such as the end of a copy: look."""
        self._commands.put(lambda: None, beside_step=True)

    def stop(self) -> None:
        """End the loop: what runs or waits is finished with ``engine_stopping``."""
        self._commands.put(self._stop)

    def close(self) -> None:
        """After the loop: what the model runs on beside this thread ends, too."""
        self._backend.close()

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until ``stop``. Blocks; call it on the engine's thread. Raises only when the engine itself is broken."""
        try:
            while not self._stopping:
                self._wait_for_work()
                self.turn()
        finally:
            for generation in list(self._live.values()):
                self._end(generation, "error", blocks_freed=0, error=_STOPPING)
            self._tell()
            self._desk.close()
            self._commands.end()

    def turn(self) -> None:
        """Once around: what was asked, what was copied, one step. Never waits for anything but the model.

        Where the device works beside the host, who listens hears of the step when the next one runs.
        """
        self._drain()
        if self._stopping:
            return
        self._idle = False
        if self._scheduler.has_work:
            self._step_guarded()
        else:
            self._commands.guarded(self._scheduler.poll)
        self._desk.settle()
        if not (self._backend.asynchronous and self._scheduler.has_work):
            self._tell()

    def _wait_for_work(self) -> None:
        """When there is nothing to do, until there is; when nothing of it could be done, a moment."""
        if not self._scheduler.has_work:
            self._commands.wait()
        elif self._idle:
            self._commands.wait(STALLED_WAIT_S)

    def _drain(self) -> None:
        self._commands.carry_out()

    def _tell(self) -> None:
        """Whoever listens hears what has happened."""
        self._flush()
        self._tell_of_steps()

    def _tell_of_steps(self) -> None:
        taken, self._taken = self._taken, []
        for step, seconds in taken:
            self.pace.learn(step, seconds)
            self._observer.step(step, seconds)

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
                self._end(generation, "error", blocks_freed=freed, error=failures.model_error(generation.request))

    def _step(self) -> None:
        begin = time.monotonic()
        step = self._scheduler.schedule(begin, self.pace.limits(shared=self._scheduler.shared(begin)))
        for request in step.admitted:
            generation = self._live[request.account, request.id]
            self._emit(generation, generation.started())
        for request in step.exhausted:
            at_limit = self._scheduler.limit_reached(request)
            self._finish(self._live[request.account, request.id], "length", error=at_limit)
        for request, error in step.refused.items():
            self._finish(self._live[request.account, request.id], "error", error=error)
        if not step.chunks:
            self._idle = not (step.admitted or step.exhausted or step.refused or step.paused)
            self._tell()
            return
        launched = self._runner.begin(step)
        try:
            if self._backend.asynchronous:
                self._beside(step)
        finally:
            results = launched.wait()
        now = time.monotonic()
        self._take(self._scheduler.complete(step, results, now))
        self.steps += 1
        self._taken.append((step, now - begin))
        if not self._backend.asynchronous:
            self._tell_of_steps()
        if self._debug:
            self.check()

    def _beside(self, step: Step) -> None:
        """A step runs on the device: everything that neither needs its results nor gives its blocks to others."""
        self._tell()
        self._commands.carry_out_beside_step()
        self._scheduler.poll()
        self._desk.settle()
        self._scheduler.plan_ahead(step)
        if self._debug:
            self.check()

    def _take(self, produced: Produced) -> None:
        """What the step gave each sequence goes to its generation."""
        beams: dict[Request, list[Candidates]] = {}
        for sequence, result in produced:
            request = sequence.request
            generation = self._live.get((request.account, request.id))
            if generation is None:
                if isinstance(result, int):
                    self._scheduler.take_back(sequence)  # an earlier token, or another sequence, has just ended it
                continue
            if isinstance(result, Candidates):
                beams.setdefault(request, []).append(result)
            elif isinstance(result, ChunkError):
                self._finish(generation, "error", error=failures.told(request, result))
            else:
                self._guarded(generation, self._advance, sequence, result)
        for request, candidates in beams.items():
            generation = self._live.get((request.account, request.id))
            if generation is not None:
                self._guarded(generation, self._search, candidates)

    def check(self) -> None:
        """Debug builds: the pool's invariants hold, and every block is held by a request, a prefix or a copy."""
        self._scheduler.check()

    # --- one generation -----------------------------------------------------------------------------------------------

    def _submit(self, generation: Generation) -> None:
        request = generation.request
        if (request.account, request.id) in self._live:
            self._outcomes.append((generation.log, _IN_USE))
            return
        try:
            self._scheduler.add(request)
        except RequestRefused as refusal:
            self._outcomes.append((generation.log, refusal.error))
            return
        except Exception as error:
            logs.failure(logger, "submit_failed", error, id=request.id, account=request.account)
            self._outcomes.append((generation.log, failures.model_error(request)))
            return
        if isinstance(generation, BeamGeneration):
            request.candidates = generation.candidates_per_beam
        self._live[request.account, request.id] = generation

    def _cancel(self, key: Key) -> None:
        generation = self._live.get(key)
        if generation is not None:
            self._abort(generation, "cancelled")

    def _guarded(self, generation: Generation, advance: Callable[..., None], *arguments: object) -> None:
        """A failure while an answer goes on ends this answer and nothing else."""
        try:
            advance(generation, *arguments)
        except Exception as error:
            request = generation.request
            told = failures.told(request, error)
            if (request.account, request.id) in self._live:
                self._finish(generation, "error", error=told)

    def _advance(self, generation: Generation, sequence: Sequence, token: int) -> None:
        """One more token of an answer; when the last answer has ended, the generation has."""
        assert isinstance(generation, SampledGeneration)
        delta, reason = generation.advance(sequence, token)
        self._emit(generation, delta)
        if reason is None:
            return
        if generation.answers_open:
            self._scheduler.finish_sequence(sequence)
        else:
            self._finish(generation, generation.finish_reason)

    def _search(self, generation: Generation, candidates: list[Candidates]) -> None:
        """One step of a beam search: beams fork and end, or the answers are found."""
        assert isinstance(generation, BeamGeneration)
        picks = generation.advance_beams(candidates)
        if picks:
            self._scheduler.branch(generation.request, picks)
            return
        for delta in generation.last_deltas():
            self._emit(generation, delta)
        self._finish(generation, generation.finish_reason)

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
        if reason in ("cancelled", "length") and generation.seq:  # one that never began has its end alone
            self._emit_held_text(generation, reason)
        finished = generation.finished(reason, time.monotonic(), blocks_freed=blocks_freed, error=error)
        self._emit(generation, finished)
        self._observer.finished(finished)
        logs.generation_finished(logger, request, finished)

    def _emit_held_text(self, generation: Generation, reason: FinishReason) -> None:
        try:
            deltas = generation.held_text(reason)
        except Exception as error:
            request = generation.request
            logs.failure(logger, "generation_failed", error, id=request.id, account=request.account)
            return
        for delta in deltas:
            self._emit(generation, delta)

    def _emit(self, generation: Generation, event: Event) -> None:
        self._outcomes.append((generation.log, event))

    # --- accounts and the end -----------------------------------------------------------------------------------------

    def _end_refused(self, request: Request, error: Error) -> None:
        """A quota edit ended a request that the scheduler has let go."""
        generation = self._live.get((request.account, request.id))
        if generation is not None:
            self._end(generation, "error", blocks_freed=0, error=error)

    def _stop(self) -> None:
        self._stopping = True
        for generation in list(self._live.values()):
            self._abort(generation, "error", error=_STOPPING)
