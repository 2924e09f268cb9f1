"""The scheduler: iteration-level scheduling with a token budget, over the pool's accounts.

Every step it lets all decoding sequences take one token, then spends what is left of the budget on prompts, in chunks:
always for the account with the least service, its half-computed prompts first, then the head of its queue. A request
is admitted only when its whole known context plus one block per sequence can be had, and takes those blocks at once,
so that two half-computed prompts can never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.prefix_index import Entry
from pagoda_inference.model.backend import ChunkError
from pagoda_inference.protocol import Account, Error
from pagoda_inference.scheduling.fairness import VirtualTokenCounters
from pagoda_inference.scheduling.preemption import QUANTUM, PreemptionPlanner
from pagoda_inference.scheduling.queues import WaitingQueues
from pagoda_inference.scheduling.sequence import Request, RequestState, Sequence
from pagoda_inference.scheduling.step import ScheduledChunk, Step

MAX_PASSED = 8
"""How often the head of a queue may be passed by later requests of its account; then the account saves blocks for it.
"""


class RequestRefused(Exception):
    """The request can never run as things are, or the queue is full. ``error`` has the numbers and what to do."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class Scheduler:
    """Decides each step's chunks. Used from the engine's thread only."""

    def __init__(
        self, pool: Pool, *, token_budget: int = 512, max_running: int = 64, max_waiting_per_account: int = 1024
    ) -> None:
        if not 1 <= max_running <= token_budget:
            raise ValueError("the token budget of a step must cover one token for each running request")
        self.pool = pool
        self.token_budget = token_budget
        self.max_running = max_running
        self.max_waiting_per_account = max_waiting_per_account
        self.waiting = WaitingQueues()
        self.running: list[Request] = []
        self.counters = VirtualTokenCounters()

    @property
    def has_work(self) -> bool:
        return bool(self.running or len(self.waiting))

    # --- requests come and go -----------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestRefused, having changed nothing."""
        ledger = self._ledger(request.account)
        self._refuse_if_never(request, ledger)
        if len(self.waiting.of(request.account)) >= self.max_waiting_per_account:
            raise RequestRefused(
                Error(
                    "queue_full",
                    f"{self.max_waiting_per_account} requests of this tenant are waiting already. Try again later.",
                    {"waiting": self.max_waiting_per_account},
                )
            )
        busy = self._busy_accounts()
        if request.account not in busy:
            self.counters.lift(request.account, busy)
        for sequence in request.sequences:
            sequence.chain = self.pool.chain(request.account, request.scope)
        self.waiting.add(request)

    def abort(self, request: Request) -> int:
        """Take a request out in any state and give its blocks back; returns how many. Doing it again does nothing."""
        if request.state is RequestState.FINISHED:
            return 0
        if request.state is RequestState.WAITING:
            self.waiting.remove(request)
        else:
            self.running.remove(request)
        request.state = RequestState.FINISHED
        freed = self._free(request)
        if request.account not in self._busy_accounts():
            self.counters.left(request.account)
        return freed

    def finish(self, request: Request) -> int:
        """A request is done. Its full blocks stay cached for whoever comes back."""
        return self.abort(request)

    def set_accounts(self, accounts: Iterable[Account], version: int) -> list[tuple[Request, Error]]:
        """Put quotas in force at once, for running, queued and preempted requests alike.

        Returns the requests that ended with it (deleted tenant, or can never run under the new limits) and why. Raises
        AccountsRefused, having changed nothing.
        """
        gone = self.pool.accounts.replace(accounts, version)
        ended: list[tuple[Request, Error]] = []
        for ledger in gone:
            for request in [*self.running, *self.waiting]:
                if request.account == ledger.id:
                    self.abort(request)
                    ended.append((request, Error("unknown_account", "The tenant was deleted or suspended.")))
            self.pool.purge(ledger)
            self.pool.accounts.remove(ledger)
            self.counters.forget(ledger.id)
        for ledger in self.pool.accounts:
            self.pool.evict_above_limit(ledger)
            while ledger.active > ledger.limit:
                self._preempt(max(self._running_of(ledger), key=lambda request: request.order))
            self.pool.evict_above_limit(ledger)
        while self.pool.accounts.committed > self.pool.total:
            self._preempt(max(self.running, key=lambda request: (self._active_excess(request), request.order)))
        for request in list(self.waiting):
            try:
                self._refuse_if_never(request, self._ledger(request.account))
            except RequestRefused as refusal:
                self.abort(request)
                ended.append((request, refusal.error))
        return ended

    # --- a step -------------------------------------------------------------------------------------------------------

    def schedule(self, now: float) -> Step:
        """Choose the next step's chunks, and take the blocks they need."""
        step = Step()
        stalled = self._schedule_decodes(step)
        self._unblock(step, stalled)
        budget = self.token_budget - len(step.chunks)
        unserved = [request for request in self.running if self._prefilling(request)]
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
            self.counters.charge_output(request.account, 1, ledger.weight)
            produced.append((sequence, result))
        return produced

    def fail(self, step: Step) -> None:
        """The step raised: nothing was computed. The requests stay as they were and are scheduled again."""
        for chunk in step.chunks:
            self._refund(chunk)

    # --- decodes ------------------------------------------------------------------------------------------------------

    def _schedule_decodes(self, step: Step) -> list[Request]:
        """One token for every decoding sequence, oldest request first. Returns the requests that could not grow."""
        stalled = []
        for request in sorted(self.running, key=lambda request: request.order):
            ready = request.state is RequestState.RUNNING and not self._prefilling(request)
            if ready and not self._decode(step, request):
                stalled.append(request)
        return [request for request in stalled if request.state is RequestState.RUNNING]

    def _decode(self, step: Step, request: Request) -> bool:
        """Schedule one more token for each sequence, making room by preemption if the rules allow it."""
        if not self._make_room(step, request, self._growth(request)):
            return False
        for sequence in request.sequences:
            assert sequence.table is not None
            copies = self.pool.append(sequence.table, sequence.computed, sequence.computed + 1)
            self._schedule_chunk(step, sequence, 1).copies = copies
        return True

    def _growth(self, request: Request) -> int:
        """Blocks that the request's next tokens take."""
        return sum(
            self.pool.needed(sequence.table, sequence.computed, sequence.computed + 1)
            for sequence in request.sequences
            if sequence.table is not None
        )

    def _make_room(self, step: Step, taker: Request, needed: int) -> bool:
        ledger = self._ledger(taker.account)
        if not needed or self.pool.accounts.room(ledger) >= needed:
            return True
        if taker.is_batch:
            return False  # batch work never preempts
        victims = PreemptionPlanner(self.pool, self.running).plan(taker, ledger, needed)
        for victim in victims or ():
            self._preempt(victim, step)
        return self.pool.accounts.room(ledger) >= needed

    def _unblock(self, step: Step, stalled: list[Request]) -> None:
        """Progress: where nobody of an account can go on, its youngest gives way until one can; the oldest never does.

        A request left alone at its account's effective limit can never grow: it is exhausted. One that waits for other
        accounts' blocks waits while they run; where nobody runs at all, the youngest of all gives way.
        """
        for account in {request.account for request in stalled}:
            ledger = self._ledger(account)
            while not self._has_chunks(step, account):
                running = sorted(self._running_of(ledger), key=lambda request: request.order)
                if not running or any(self._prefilling(request) for request in running):
                    break
                if self._decode(step, running[0]):
                    break
                if not self._at_limit(ledger, self._growth(running[0])):
                    break  # it waits for other accounts
                if len(running) == 1:
                    step.exhausted.append(running[0])
                    break
                self._preempt(running[-1], step)
        while self.running and not step.chunks and not step.exhausted and not self._any_prefilling():
            oldest, *others = sorted(self.running, key=lambda request: request.order)
            if self._decode(step, oldest):
                break
            if others:
                self._preempt(others[-1], step)
            else:
                step.exhausted.append(oldest)

    # --- prompts and admission ----------------------------------------------------------------------------------------

    def _next_prefill(
        self, step: Step, unserved: list[Request], closed: set[str], budget: int, now: float
    ) -> ScheduledChunk | None:
        """The next chunk of a prompt, for the account with the least service that has one to compute."""
        while True:
            accounts = {request.account for request in unserved} | set(self.waiting.accounts()) - closed
            if not accounts:
                return None
            account = min(accounts, key=lambda account: (self.counters.of(account), account))
            own = [request for request in unserved if request.account == account]
            if own:
                request = min(own, key=lambda request: request.order)
                unserved.remove(request)
                if request.state is not RequestState.RUNNING:
                    continue  # preempted for somebody else in this step
            else:
                admitted = self._admit_from(step, account, now)
                if admitted is None:
                    closed.add(account)
                    continue
                request = admitted
            return self._prefill(step, request, budget)

    def _prefill(self, step: Step, request: Request, budget: int) -> ScheduledChunk:
        sequence = max(request.sequences, key=lambda sequence: sequence.uncomputed)
        return self._schedule_chunk(step, sequence, min(sequence.uncomputed, budget))

    def _schedule_chunk(self, step: Step, sequence: Sequence, count: int) -> ScheduledChunk:
        """Add the next ``count`` tokens of a sequence to the step, and charge what of them is new input."""
        request = sequence.request
        start, end = sequence.computed, sequence.computed + count
        charged = max(0, min(end, sequence.prompt_length) - max(start, request.recompute_until))
        chunk = ScheduledChunk(sequence, start, count, end == len(sequence.tokens), charged)
        if charged:
            ledger = self._ledger(request.account)
            self.counters.charge_input(request.account, charged, ledger.weight)
            ledger.tokens_in += charged
        step.chunks.append(chunk)
        return chunk

    def _refund(self, chunk: ScheduledChunk) -> None:
        ledger = self._ledger(chunk.sequence.request.account)
        self.counters.charge_input(ledger.id, -chunk.charged, ledger.weight)
        ledger.tokens_in -= chunk.charged

    def _admit_from(self, step: Step, account: str, now: float) -> Request | None:
        """Admit the first request of an account's queue that can have its blocks and a slot."""
        slot_victim = self._slot_victim(account)
        if len(self.running) >= self.max_running and slot_victim is None:
            return None
        for position, request in enumerate(self.waiting.of(account)):
            if self._make_room_to_admit(step, request, may_preempt=position == 0):
                if slot_victim is not None and slot_victim.state is RequestState.RUNNING:
                    self._preempt(slot_victim, step)
                for earlier in self.waiting.of(account)[:position]:
                    earlier.passed += 1
                self._admit(step, request, now)
                return request
            if request.passed >= MAX_PASSED or position >= MAX_PASSED:
                return None
        return None

    def _slot_victim(self, account: str) -> Request | None:
        """All slots are taken: whose slot an account without any may take, from the account with most per weight."""
        ledger = self._ledger(account)
        if len(self.running) < self.max_running or self._running_of(ledger):
            return None
        slots: dict[str, int] = {}
        for request in self.running:
            slots[request.account] = slots.get(request.account, 0) + 1
        richest = max(slots, key=lambda id: slots[id] / self._ledger(id).weight)
        if (slots[richest] - 1) / self._ledger(richest).weight < 1 / ledger.weight:
            return None
        youngest = max(self._running_of(self._ledger(richest)), key=lambda request: request.order)
        return youngest if youngest.since_admission >= QUANTUM else None

    def _make_room_to_admit(self, step: Step, request: Request, *, may_preempt: bool) -> bool:
        """Whether the whole known context plus one block per sequence can be had, if need be by preemption."""
        ledger = self._ledger(request.account)
        if self.pool.accounts.room(ledger) >= self._admission_need(request, ledger):
            return True
        if not may_preempt or not self._make_room(step, request, self._admission_need(request, ledger)):
            return False
        # A victim may have shared prefix blocks with the request: they are cached now, and waking them counts.
        return self.pool.accounts.room(ledger) >= self._admission_need(request, ledger)

    def _admission_need(self, request: Request, ledger: Ledger) -> int:
        needed = 0
        for sequence in request.sequences:
            active = sum(1 for entry in self._match(sequence) if entry.block.references)
            needed += self.pool.blocks_for(len(sequence.tokens)) + 1 - active
        if not ledger.active:
            # One that had grown to the very limit comes back without its spare block.
            needed = min(needed, self.pool.accounts.effective_limit(ledger))
        return needed

    def _admit(self, step: Step, request: Request, now: float) -> None:
        """Give a request its tables: the cached prefix, and blocks for all tokens known so far."""
        ledger = self._ledger(request.account)
        self.waiting.remove(request)
        for sequence in request.sequences:
            assert sequence.chain is not None
            sequence.table = self.pool.open_table(ledger, sequence.chain)
            entries = self._match(sequence)
            self.pool.adopt(sequence.table, entries)
            sequence.computed = len(entries) * self.pool.block_size
        for sequence in request.sequences:
            assert sequence.table is not None
            self.pool.append(sequence.table, sequence.computed, len(sequence.tokens))
        request.state = RequestState.RUNNING
        request.since_admission = 0
        request.passed = 0
        self.running.append(request)
        if request.admitted_at is None:
            self._first_admission(step, request, ledger, now)

    def _match(self, sequence: Sequence) -> list[Entry]:
        assert sequence.chain is not None
        return self.pool.match(sequence.chain, sequence.tokens)

    def _first_admission(self, step: Step, request: Request, ledger: Ledger, now: float) -> None:
        """Count hits once: tokens found again after a preemption are nobody's cache."""
        request.admitted_at = now
        request.cached_tokens = sum(sequence.computed for sequence in request.sequences)
        ledger.queue_wait_s += max(0.0, now - request.arrival)
        ledger.hit_tokens += request.cached_tokens
        ledger.queried_tokens += sum(sequence.prompt_length for sequence in request.sequences)
        step.admitted.append(request)

    # --- preemption ---------------------------------------------------------------------------------------------------

    def _preempt(self, request: Request, step: Step | None = None) -> None:
        """Take a running request's blocks; it waits at its old place and is computed again (what is still cached is
        found).
        """
        request.recompute_until = max(request.recompute_until, max(sequence.computed for sequence in request.sequences))
        if step is not None:
            for chunk in step.without(request):
                self._refund(chunk)
            step.preempted.append(request)
            if request in step.admitted:
                step.admitted.remove(request)
                request.admitted_at = None
        ledger = self._ledger(request.account)
        ledger.preemptions["recompute"] = ledger.preemptions.get("recompute", 0) + 1
        self._free(request)
        self.running.remove(request)
        request.preemptions += 1
        request.state = RequestState.WAITING
        self.waiting.add(request)

    def _free(self, request: Request) -> int:
        freed = 0
        for sequence in request.sequences:
            if sequence.table is not None:
                freed += self.pool.free(sequence.table)
                sequence.table = None
            sequence.computed = 0
        return freed

    # --- looking ------------------------------------------------------------------------------------------------------

    def _ledger(self, account: str) -> Ledger:
        ledger = self.pool.accounts.find(account)
        if ledger is None:
            raise RequestRefused(
                Error("unknown_account", "The engine does not know this tenant (yet). Try again in a few seconds.")
            )
        return ledger

    def _refuse_if_never(self, request: Request, ledger: Ledger) -> None:
        tokens = sum(len(sequence.tokens) for sequence in request.sequences)
        needed = sum(self.pool.blocks_for(len(sequence.tokens)) + 1 for sequence in request.sequences)
        limit = self.pool.accounts.effective_limit(ledger)
        if needed > limit:
            raise RequestRefused(
                Error(
                    "kv_limit_exceeded",
                    f"{tokens} prompt tokens need {needed} KV blocks and this tenant can have {limit}: "
                    "shorten the prompt, or ask the operator for a higher limit.",
                    {"needed_blocks": needed, "limit_blocks": limit, "block_size": self.pool.block_size},
                )
            )

    def _prefilling(self, request: Request) -> bool:
        return any(sequence.uncomputed > 1 or not sequence.computed for sequence in request.sequences)

    def _any_prefilling(self) -> bool:
        return any(self._prefilling(request) for request in self.running)

    def _has_chunks(self, step: Step, account: str) -> bool:
        return any(chunk.sequence.request.account == account for chunk in step.chunks)

    def _at_limit(self, ledger: Ledger, needed: int) -> bool:
        return ledger.active + needed > self.pool.accounts.effective_limit(ledger)

    def _running_of(self, ledger: Ledger) -> list[Request]:
        return [request for request in self.running if request.account == ledger.id]

    def _active_excess(self, request: Request) -> float:
        ledger = self._ledger(request.account)
        return max(0, ledger.active - ledger.reservation) / ledger.weight

    def _busy_accounts(self) -> set[str]:
        return {request.account for request in self.running} | set(self.waiting.accounts())
