"""Prompts: what is left of a step's budget, for whoever has had the least service."""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.scheduling.admission import Admission
from pagoda_inference.scheduling.sequence import Request, RequestState
from pagoda_inference.scheduling.step import Step
from pagoda_inference.scheduling.workload import Workload


class Prefills:
    """Schedules chunks of prompts, and admits from the queues."""

    def __init__(self, workload: Workload, admission: Admission) -> None:
        self._workload = workload
        self._admission = admission

    @property
    def any_prompts(self) -> bool:
        """Somebody waits, or has a prompt that is not computed yet."""
        workload = self._workload
        return bool(len(workload.waiting)) or any(not request.decoding for request in workload.running)

    def first_to_serve(self) -> int | None:
        """Tokens of a prompt that shall not wait for the others' decodes: of a tenant beside whom most that decodes is
        of tenants with no less service. None if there is none.

        A request that could not come when it was looked at first is not waited for.
        """
        workload = self._workload
        decoding = Counter(request.account for request in workload.running if request.decoding)
        if not decoding:
            return None
        ledgers = {ledger.id: ledger for ledger in workload.running_by_account.ledgers()}
        first: Request | None = None
        for account in sorted({*workload.waiting.accounts(), *ledgers}):
            request = self._first_of(account)
            if request is None or (first is not None and request.ledger.service >= first.ledger.service):
                continue
            ahead = sum(
                count
                for other, count in decoding.items()
                if other != account and ledgers[other].service >= request.ledger.service
            )
            if ahead * 2 >= decoding.total():
                first = request
        return None if first is None else max(1, first.sequences[0].uncomputed - self._cached(first))

    def _first_of(self, account: str) -> Request | None:
        """The account's oldest prompt without a token, if it is not known to be stuck."""
        workload = self._workload
        for request in workload.running_by_account.of(account):
            if not request.begun and not request.loading:
                return request
        waiting = workload.waiting.of(account)
        return waiting[0] if waiting and not waiting[0].begun and not waiting[0].tried else None

    def _cached(self, request: Request) -> int:
        return len(request.match.run) * self._workload.pool.block_size if request.match is not None else 0

    def schedule(self, step: Step, budget: int, now: float) -> None:
        """Fill the step. Who could be served, and was or had no budget left, is backlogged; who could not is not."""
        for publishing in self._workload.publishing:
            if budget > 0:
                budget -= self._chunk(step, publishing, budget)
        unfinished = self._unfinished()
        ledgers = self._who_asks(unfinished)
        counters, by_account = self._workload.counters, self._workload.running_by_account
        counters.keep(ledgers)
        for id in unfinished:
            counters.lift(ledgers[id], self._workload.busy)
        heap = [(ledger.service, len(by_account.of(id)), id) for id, ledger in ledgers.items()]
        heapify(heap)
        while heap and budget > 0:
            _, _, id = heappop(heap)
            ledger = ledgers[id]
            request = self._next(step, ledger, unfinished, now)
            if request is None:
                if not unfinished.get(id):
                    counters.left(ledger)
                continue
            if not request.loading:
                budget -= self._chunk(step, request, budget)
            heappush(heap, (ledger.service, len(by_account.of(id)), id))

    def _who_asks(self, unfinished: dict[str, list[Request]]) -> dict[str, Ledger]:
        """The accounts that may get something: with an unfinished prompt, or waiting while there are slots for it."""
        ledgers = self._workload.waiting.ledgers()
        if self._admission.slots_taken:
            ledgers = self._admission.who_may_have_a_slot(ledgers)
        asking = {ledger.id: ledger for ledger in ledgers}
        asking.update((requests[0].account, requests[0].ledger) for requests in unfinished.values())
        return asking

    def _unfinished(self) -> dict[str, list[Request]]:
        """Running requests whose prompts are not computed yet, by account, the youngest first."""
        unfinished: dict[str, list[Request]] = {}
        for request in reversed(self._workload.running):
            if not request.decoding and not request.loading:
                unfinished.setdefault(request.account, []).append(request)
        return unfinished

    def _next(self, step: Step, ledger: Ledger, unfinished: dict[str, list[Request]], now: float) -> Request | None:
        """The account's half-computed prompts first, the oldest before the others, then the head of its queue."""
        own = unfinished.get(ledger.id)
        while own:
            oldest = own.pop()
            if oldest.state is RequestState.RUNNING and not oldest.loading and not oldest.decoding:
                return oldest  # else it was preempted for somebody else in this step
        request = self._admission.admit_from(step, ledger, now)
        if request is not None:
            self._workload.counters.lift(ledger, self._workload.busy)
        return request

    def _chunk(self, step: Step, request: Request, budget: int) -> int:
        """The next chunk of a prompt; the number of its tokens.

        Of several sequences that come back, each is computed but for its newest token: they decode together then.
        """
        sequences = request.sequences
        sequence = sequences[0] if request.fork_at else max(sequences, key=lambda sequence: sequence.uncomputed)
        several = len(request.sequences) > 1
        count = min(sequence.uncomputed - several, budget)
        if count <= 0:
            return 0
        self._workload.schedule(step, sequence, count)
        return count
