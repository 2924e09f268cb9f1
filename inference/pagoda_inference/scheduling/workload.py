"""The live requests, waiting and running, and the verbs that move them. What the scheduler's parts share."""

from __future__ import annotations

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.pool import Pool
from pagoda_inference.protocol import Error
from pagoda_inference.scheduling.fairness import VirtualTokenCounters
from pagoda_inference.scheduling.preemption import PreemptionPlanner
from pagoda_inference.scheduling.queues import WaitingQueues
from pagoda_inference.scheduling.sequence import Request, RequestState, Sequence
from pagoda_inference.scheduling.step import ScheduledChunk, Step


class RequestRefused(Exception):
    """The request can never run as things are, or the queue is full. ``error`` has the numbers and what to do."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class Workload:
    """Every request is in ``waiting`` or ``running`` until it is removed; only the running hold blocks."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.waiting = WaitingQueues()
        self.running: list[Request] = []
        self.counters = VirtualTokenCounters()

    # --- looking ------------------------------------------------------------------------------------------------------

    def ledger(self, account: str) -> Ledger:
        """The account's ledger; raises RequestRefused for an unknown account."""
        ledger = self.pool.accounts.find(account)
        if ledger is None:
            raise RequestRefused(
                Error("unknown_account", "The engine does not know this tenant (yet). Try again in a few seconds.")
            )
        return ledger

    def running_of(self, account: str) -> list[Request]:
        return [request for request in self.running if request.account == account]

    def busy_accounts(self) -> set[str]:
        """Accounts with requests, running or waiting."""
        return {request.account for request in self.running} | set(self.waiting.accounts())

    def in_order(self) -> list[Request]:
        """Running requests, the oldest first."""
        return sorted(self.running, key=lambda request: request.order)

    # --- moving -------------------------------------------------------------------------------------------------------

    def queue(self, request: Request) -> None:
        """A new request waits. An account that had no work is lifted to the level of those that have."""
        busy = self.busy_accounts()
        if request.account not in busy:
            self.counters.lift(request.account, busy)
        for sequence in request.sequences:
            sequence.chain = self.pool.chain(request.account, request.scope)
        self.waiting.add(request)

    def start(self, request: Request) -> None:
        """From waiting to running; the caller gives it its tables."""
        self.waiting.remove(request)
        request.state = RequestState.RUNNING
        request.since_admission = 0
        request.passed = 0
        self.running.append(request)

    def remove(self, request: Request) -> int:
        """Take a request out in any state and give its blocks back; returns how many. Doing it again does nothing."""
        if request.state is RequestState.FINISHED:
            return 0
        if request.state is RequestState.WAITING:
            self.waiting.remove(request)
        else:
            self.running.remove(request)
        request.state = RequestState.FINISHED
        freed = self._free(request)
        if request.account not in self.busy_accounts():
            self.counters.left(request.account)
        return freed

    def preempt(self, request: Request, step: Step | None = None) -> None:
        """Take a running request's blocks. It waits at its old place, and is computed again but for what is still
        cached.
        """
        computed = max(sequence.computed for sequence in request.sequences)
        request.recompute_until = max(request.recompute_until, computed)
        if step is not None:
            self._withdraw(request, step)
        ledger = self.ledger(request.account)
        ledger.preemptions["recompute"] = ledger.preemptions.get("recompute", 0) + 1
        self._free(request)
        self.running.remove(request)
        request.preemptions += 1
        request.state = RequestState.WAITING
        self.waiting.add(request)

    def make_room(self, step: Step, taker: Request, needed: int) -> bool:
        """Whether the taker's account can make ``needed`` more blocks active, if need be by preempting others."""
        ledger = self.ledger(taker.account)
        if not needed or self.pool.accounts.room(ledger) >= needed:
            return True
        if taker.is_batch:
            return False  # batch work never preempts
        victims = PreemptionPlanner(self.pool, self.running).plan(taker, ledger, needed)
        for victim in victims or ():
            self.preempt(victim, step)
        return self.pool.accounts.room(ledger) >= needed

    # --- chunks -------------------------------------------------------------------------------------------------------

    def schedule(self, step: Step, sequence: Sequence, count: int) -> ScheduledChunk:
        """Add the next ``count`` tokens of a sequence to the step, and charge what of them is new input."""
        request = sequence.request
        start, end = sequence.computed, sequence.computed + count
        charged = max(0, min(end, sequence.prompt_length) - max(start, request.recompute_until))
        chunk = ScheduledChunk(sequence, start, count, end == len(sequence.tokens), charged)
        self._charge(chunk, charged)
        step.chunks.append(chunk)
        return chunk

    def refund(self, chunk: ScheduledChunk) -> None:
        """The chunk was not computed after all."""
        self._charge(chunk, -chunk.charged)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _charge(self, chunk: ScheduledChunk, tokens: int) -> None:
        if tokens:
            ledger = self.ledger(chunk.sequence.request.account)
            self.counters.charge_input(ledger.id, tokens, ledger.weight)
            ledger.tokens_in += tokens

    def _withdraw(self, request: Request, step: Step) -> None:
        """Undo what this very step had planned for a request that is preempted now."""
        for chunk in step.without(request):
            self.refund(chunk)
        step.preempted.append(request)
        if request in step.admitted:
            step.admitted.remove(request)
            request.admitted_at = None

    def _free(self, request: Request) -> int:
        freed = 0
        for sequence in request.sequences:
            if sequence.table is not None:
                freed += self.pool.free(sequence.table)
                sequence.table = None
            sequence.computed = 0
        return freed
