"""The scheduler: iteration-level scheduling with a token budget, over the pool's accounts.

Every step it lets all decoding sequences take one token, then spends what is left of the budget on prompts, in chunks:
always for the account with the least service, its half-computed prompts first, then the head of its queue. A request
is admitted only when its whole known context plus one block per sequence can be had, and takes those blocks at once,
so that two half-computed prompts can never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf

from pagoda_inference.kv.pool import Pool
from pagoda_inference.model.backend import ChunkError
from pagoda_inference.protocol import Account, Error
from pagoda_inference.scheduling.admission import Admission
from pagoda_inference.scheduling.decodes import Decodes
from pagoda_inference.scheduling.quotas import Ended, apply_accounts
from pagoda_inference.scheduling.report import Report, make_report
from pagoda_inference.scheduling.sequence import Request, RequestState, Sequence
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.scheduling.workload import RequestRefused, Workload

__all__ = ["RequestRefused", "Scheduler"]


class Scheduler:
    """Decides each step's chunks. Used from the engine's thread only."""

    def __init__(
        self, pool: Pool, *, token_budget: int = 512, max_running: int = 64, max_waiting_per_account: int = 1024
    ) -> None:
        if not 1 <= max_running <= token_budget:
            raise ValueError("the token budget of a step must cover one token for each running request")
        self.pool = pool
        self.token_budget = token_budget
        self.max_waiting_per_account = max_waiting_per_account
        self._workload = Workload(pool)
        self._admission = Admission(self._workload, max_running)
        self._decodes = Decodes(self._workload)
        self.waiting = self._workload.waiting
        self.running = self._workload.running

    @property
    def has_work(self) -> bool:
        return bool(self.running or len(self.waiting))

    # --- requests come and go -----------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestRefused, having changed nothing."""
        self._admission.refuse_if_never(request)
        if len(self.waiting.of(request.account)) >= self.max_waiting_per_account:
            raise RequestRefused(
                Error(
                    "queue_full",
                    f"{self.max_waiting_per_account} requests of this tenant are waiting already. Try again later.",
                    {"waiting": self.max_waiting_per_account},
                )
            )
        self._workload.queue(request)

    def abort(self, request: Request) -> int:
        """Take a request out in any state and give its blocks back; returns how many. Doing it again does nothing."""
        return self._workload.remove(request)

    def finish(self, request: Request) -> int:
        """A request is done. Its full blocks stay cached for whoever comes back."""
        return self._workload.remove(request)

    def set_accounts(self, accounts: Iterable[Account], version: int) -> Ended:
        """Put quotas in force at once. Returns the requests that ended with it and why; raises AccountsRefused."""
        return apply_accounts(self._workload, self._admission, accounts, version)

    def report(self) -> Report:
        """All accounts and totals, now."""
        return make_report(self._workload)

    # --- a step -------------------------------------------------------------------------------------------------------

    def schedule(self, now: float) -> Step:
        """Choose the next step's chunks, and take the blocks they need. ``now``: seconds on the caller's clock."""
        step = Step()
        self._decodes.schedule(step)
        budget = self.token_budget - len(step.chunks)
        unserved = [request for request in self.running if request.prefilling]
        closed: set[str] = set()
        while budget > 0:
            chunk = self._next_prefill(step, unserved, closed, budget, now)
            if chunk is None:
                break
            budget -= chunk.count
        return step

    def complete(
        self, step: Step, results: SequenceOf[int | ChunkError | None], now: float
    ) -> list[tuple[Sequence, int | ChunkError]]:
        """Take over what a step computed: append the new tokens and make written blocks findable.

        Returns every sequence with its new token, or with the error of its chunk: the caller finishes such a request.
        """
        produced: list[tuple[Sequence, int | ChunkError]] = []
        for chunk, result in zip(step.chunks, results, strict=True):
            sequence = chunk.sequence
            request = sequence.request
            if request.state is not RequestState.RUNNING:
                continue  # aborted while the step ran
            if isinstance(result, ChunkError):
                produced.append((sequence, result))
                continue
            assert sequence.table is not None
            sequence.computed = chunk.start + chunk.count
            self.pool.commit(sequence.table, sequence.tokens, sequence.computed)
            if result is None:
                continue
            sequence.tokens.append(result)
            request.since_admission += 1
            if request.first_token_at is None:
                request.first_token_at = now
            ledger = sequence.table.account
            ledger.tokens_out += 1
            self._workload.counters.charge_output(request.account, 1, ledger.weight)
            produced.append((sequence, result))
        return produced

    def fail(self, step: Step) -> None:
        """The step raised: nothing was computed. The requests stay as they were and are scheduled again."""
        for chunk in step.chunks:
            self._workload.refund(chunk)

    # --- prompts ------------------------------------------------------------------------------------------------------

    def _next_prefill(
        self, step: Step, unserved: list[Request], closed: set[str], budget: int, now: float
    ) -> ScheduledChunk | None:
        """The next chunk of a prompt, for the account with the least service that has one to compute."""
        while True:
            accounts = {request.account for request in unserved} | set(self.waiting.accounts()) - closed
            if not accounts:
                return None
            account = min(accounts, key=lambda account: (self._workload.counters.of(account), account))
            own = [request for request in unserved if request.account == account]
            if own:
                request = min(own, key=lambda request: request.order)
                unserved.remove(request)
                if request.state is not RequestState.RUNNING:
                    continue  # preempted for somebody else in this step
            else:
                admitted = self._admission.admit_from(step, account, now)
                if admitted is None:
                    closed.add(account)
                    continue
                request = admitted
            return self._prefill(step, request, budget)

    def _prefill(self, step: Step, request: Request, budget: int) -> ScheduledChunk:
        sequence = max(request.sequences, key=lambda sequence: sequence.uncomputed)
        return self._workload.schedule(step, sequence, min(sequence.uncomputed, budget))
