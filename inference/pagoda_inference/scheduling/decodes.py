"""Decoding: one more token for everybody, and who gives way when blocks run out."""

from __future__ import annotations

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.scheduling.sequence import Request, RequestState
from pagoda_inference.scheduling.step import Step
from pagoda_inference.scheduling.workload import Workload


class Decodes:
    """Schedules the decoding requests of a step."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._pool = workload.pool

    def schedule(self, step: Step) -> None:
        """One token for every decoding sequence, the oldest request first."""
        stalled = []
        for request in self._workload.in_order():
            ready = request.state is RequestState.RUNNING and not request.prefilling
            if ready and not self._decode(step, request):
                stalled.append(request)
        self._unblock(step, {request.account for request in stalled if request.state is RequestState.RUNNING})

    def _decode(self, step: Step, request: Request) -> bool:
        """Schedule one more token for each sequence, making room by preemption if the rules allow it."""
        if not self._workload.make_room(step, request, self._growth(request)):
            return False
        for sequence in request.sequences:
            assert sequence.table is not None
            copies = self._pool.append(sequence.table, sequence.computed, sequence.computed + 1)
            self._workload.schedule(step, sequence, 1).copies = copies
        return True

    def _growth(self, request: Request) -> int:
        """Blocks that the request's next tokens take."""
        return sum(
            self._pool.needed(sequence.table, sequence.computed, sequence.computed + 1)
            for sequence in request.sequences
            if sequence.table is not None
        )

    def _unblock(self, step: Step, accounts: set[str]) -> None:
        """Progress: where nobody of an account can go on, its youngest gives way until one can; the oldest never does.

        A request left alone at its account's effective limit can never grow: it is exhausted. One that waits for other
        accounts' blocks waits while they run; where nobody runs at all, the youngest of all gives way.
        """
        for account in accounts:
            self._unblock_account(step, account)
        while not step.chunks and not step.exhausted and self._workload.running:
            oldest, *others = self._workload.in_order()
            if any(request.prefilling for request in (oldest, *others)) or self._decode(step, oldest):
                return
            if others:
                self._workload.preempt(others[-1], step)
            else:
                step.exhausted.append(oldest)

    def _unblock_account(self, step: Step, account: str) -> None:
        ledger = self._workload.ledger(account)
        while not any(chunk.sequence.request.account == account for chunk in step.chunks):
            running = sorted(self._workload.running_of(account), key=lambda request: request.order)
            if not running or any(request.prefilling for request in running):
                return
            if self._decode(step, running[0]) or not self._at_limit(ledger, self._growth(running[0])):
                return  # it goes on, or waits for other accounts
            if len(running) == 1:
                step.exhausted.append(running[0])
                return
            self._workload.preempt(running[-1], step)

    def _at_limit(self, ledger: Ledger, needed: int) -> bool:
        return ledger.active + needed > self._pool.accounts.effective_limit(ledger)
