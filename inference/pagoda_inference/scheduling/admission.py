"""Admission: a request runs when its whole known context plus one block per sequence can be had, and a slot."""

from __future__ import annotations

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.prefix_index import Entry
from pagoda_inference.protocol import Error
from pagoda_inference.scheduling.preemption import QUANTUM
from pagoda_inference.scheduling.sequence import Request, RequestState, Sequence
from pagoda_inference.scheduling.step import Step
from pagoda_inference.scheduling.workload import RequestRefused, Workload

MAX_PASSED = 8
"""How often the head of a queue may be passed by later ones of its account; then the account saves blocks for it."""


class Admission:
    """Decides who may begin, with at most ``max_running`` requests at once."""

    def __init__(self, workload: Workload, max_running: int) -> None:
        self._workload = workload
        self._pool = workload.pool
        self._max_running = max_running

    def refuse_if_never(self, request: Request) -> None:
        """Raise RequestRefused, with the numbers, if the request cannot run under its account's effective limit."""
        ledger = self._workload.ledger(request.account)
        tokens = sum(len(sequence.tokens) for sequence in request.sequences)
        needed = sum(self._pool.blocks_for(len(sequence.tokens)) + 1 for sequence in request.sequences)
        limit = self._pool.accounts.effective_limit(ledger)
        if needed > limit:
            begun = any(sequence.output_length for sequence in request.sequences)
            what = "tokens of prompt and answer" if begun else "prompt tokens"
            advice = "go on in a new conversation" if begun else "shorten the prompt"
            raise RequestRefused(
                Error(
                    "kv_limit_exceeded",
                    f"{tokens} {what} need {needed} KV blocks and this tenant can have {limit}: "
                    f"{advice}, or ask the operator for a higher limit.",
                    {"needed_blocks": needed, "limit_blocks": limit, "block_size": self._pool.block_size},
                )
            )

    def admit_from(self, step: Step, account: str, now: float) -> Request | None:
        """Admit the first request of an account's queue that can have its blocks and a slot."""
        slot_victim = self._slot_victim(account)
        if len(self._workload.running) >= self._max_running and slot_victim is None:
            return None
        for position, request in enumerate(self._workload.waiting.of(account)):
            if self._make_room_to_admit(step, request, may_preempt=position == 0):
                if slot_victim is not None and slot_victim.state is RequestState.RUNNING:
                    self._workload.preempt(slot_victim, step)
                for earlier in self._workload.waiting.of(account)[:position]:
                    earlier.passed += 1
                self._admit(step, request, now)
                return request
            if request.passed >= MAX_PASSED or position >= MAX_PASSED:
                return None
        return None

    def _slot_victim(self, account: str) -> Request | None:
        """All slots are taken: whose slot an account without any may take, from the account with most per weight."""
        ledger = self._workload.ledger(account)
        if len(self._workload.running) < self._max_running or self._workload.running_of(ledger.id):
            return None
        slots: dict[str, int] = {}
        for request in self._workload.running:
            slots[request.account] = slots.get(request.account, 0) + 1
        richest = max(slots, key=lambda id: slots[id] / self._workload.ledger(id).weight)
        if (slots[richest] - 1) / self._workload.ledger(richest).weight < 1 / ledger.weight:
            return None
        youngest = max(self._workload.running_of(richest), key=lambda request: request.order)
        return youngest if youngest.since_admission >= QUANTUM else None

    def _make_room_to_admit(self, step: Step, request: Request, *, may_preempt: bool) -> bool:
        """Whether the whole known context plus one block per sequence can be had, if need be by preemption."""
        ledger = self._workload.ledger(request.account)
        needed = self._admission_need(request, ledger)
        if self._pool.accounts.room(ledger) >= needed:
            return True
        if not may_preempt or not self._workload.make_room(step, request, needed):
            return False
        # A victim may have shared prefix blocks with the request: they are cached now, and waking them counts.
        return self._pool.accounts.room(ledger) >= self._admission_need(request, ledger)

    def _admission_need(self, request: Request, ledger: Ledger) -> int:
        needed = 0
        for sequence in request.sequences:
            active = sum(1 for entry in self._match(sequence) if entry.block.references)
            needed += self._pool.blocks_for(len(sequence.tokens)) + 1 - active
        if not ledger.active:
            # One that had grown to the very limit comes back without its spare block.
            needed = min(needed, self._pool.accounts.effective_limit(ledger))
        return needed

    def _admit(self, step: Step, request: Request, now: float) -> None:
        """Give a request its tables: the cached prefix, and blocks for all tokens known so far."""
        ledger = self._workload.ledger(request.account)
        self._workload.start(request)
        for sequence in request.sequences:
            assert sequence.chain is not None
            sequence.table = self._pool.open_table(ledger, sequence.chain)
            entries = self._match(sequence)
            self._pool.adopt(sequence.table, entries)
            sequence.computed = len(entries) * self._pool.block_size
        for sequence in request.sequences:
            assert sequence.table is not None
            self._pool.append(sequence.table, sequence.computed, len(sequence.tokens))
        if request.admitted_at is None:
            self._first_admission(step, request, ledger, now)

    def _match(self, sequence: Sequence) -> list[Entry]:
        assert sequence.chain is not None
        return self._pool.match(sequence.chain, sequence.tokens)

    def _first_admission(self, step: Step, request: Request, ledger: Ledger, now: float) -> None:
        """Count hits once: tokens found again after a preemption are nobody's cache."""
        request.admitted_at = now
        request.cached_tokens = sum(sequence.computed for sequence in request.sequences)
        ledger.queue_wait_s += max(0.0, now - request.arrival)
        ledger.hit_tokens += request.cached_tokens
        ledger.queried_tokens += sum(sequence.prompt_length for sequence in request.sequences)
        step.admitted.append(request)
