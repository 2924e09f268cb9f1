"""Admission: a request runs when its whole known context plus one block per sequence can be had, and a slot."""

from __future__ import annotations

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.entry import resident
from pagoda_inference.protocol import Error
from pagoda_inference.scheduling.arrival import Arrival
from pagoda_inference.scheduling.blocked import Blocked, Look
from pagoda_inference.scheduling.match import Match
from pagoda_inference.scheduling.preemption import QUANTUM
from pagoda_inference.scheduling.saving import Saving
from pagoda_inference.scheduling.sequence import Request, RequestState
from pagoda_inference.scheduling.step import Step
from pagoda_inference.scheduling.workload import RequestRefused, Workload

MAX_PASSED = 8
"""How often the head of a queue may be passed by later ones of its account; then the account saves blocks for it."""
LEAST_BLOCKS = 2
"""No request takes less."""
EXTRA_SLOTS = 8
"""One slot in so many is there besides: for accounts that have none, the first half of these also for those that have
less than others by weight."""


class Admission:
    """Decides who may begin, with ``max_running`` requests at once and ``most_rows`` sequences."""

    def __init__(self, workload: Workload, max_running: int, most_rows: int) -> None:
        self._workload = workload
        self._saving = Saving(workload)
        self._most_rows = most_rows
        self._blocked = Blocked(workload)
        self._pool = workload.pool
        self._arrival = Arrival(workload)
        self._max_running = max_running

    def refuse_if_never(self, request: Request, ledger: Ledger) -> None:
        """Raise RequestRefused, with the numbers, if the request cannot run under its account's effective limit."""
        if request.begun:
            tokens = sum(len(sequence.tokens) for sequence in request.sequences)
            needed = self._arrival.blocks(request) - len(request.sequences)
        else:
            tokens = request.prompt_length
            needed = self._pool.blocks_for(tokens) + request.width
        needed -= self._published(request)
        limit = self._pool.accounts.effective_limit(ledger)
        if needed > limit:
            what = "tokens of prompt and answer" if request.begun else "prompt tokens"
            advice = "go on in a new conversation" if request.begun else "shorten the prompt"
            if request.width > 1:
                what, advice = f"{what} and {request.width} answers", f"{advice}, ask for fewer answers"
            raise RequestRefused(
                Error(
                    "kv_limit_exceeded",
                    f"{tokens} {what} need {needed} KV blocks and this tenant can have {limit}: "
                    f"{advice}, or ask the operator for a higher limit.",
                    {"needed_blocks": needed, "limit_blocks": limit, "block_size": self._pool.block_size},
                )
            )

    def _published(self, request: Request) -> int:
        """Blocks of a published prefix that the request begins with, also of one that is being computed: they are not
        charged to its account.
        """
        if request.forgotten:
            return 0
        tokens, size = request.sequences[0].tokens, self._pool.block_size
        most = (len(tokens) - 1) // size
        found = len(self._pool.index.published_run(tokens, most, size))
        for publishing in self._workload.publishing:
            prefix = publishing.sequences[0].tokens
            while (
                found < min(most, len(prefix) // size) and prefix[: (found + 1) * size] == tokens[: (found + 1) * size]
            ):
                found += 1
        return found

    def end_what_never_fits(self) -> list[tuple[Request, Error]]:
        """Take out the waiting requests that can never run under the quotas as they are now, and say why."""
        ended = []
        for request in list(self._workload.waiting):
            try:
                self.refuse_if_never(request, request.ledger)
            except RequestRefused as refusal:
                self._workload.remove(request)
                ended.append((request, refusal.error))
        return ended

    @property
    def arrival(self) -> Arrival:
        return self._arrival

    @property
    def slots_taken(self) -> bool:
        """As many requests run as may: see ``who_may_have_a_slot``."""
        return len(self._workload.running) >= self._max_running

    def who_may_have_a_slot(self, ledgers: list[Ledger]) -> list[Ledger]:
        """Of accounts that wait, those that may get a slot although all are taken."""
        running, by_account = len(self._workload.running), self._workload.running_by_account
        slots = {ledger.id: len(by_account.of(ledger.id)) for ledger in ledgers}
        if running >= self._max_running + self._max_running // EXTRA_SLOTS // 2:
            return [ledger for ledger in ledgers if not slots[ledger.id]]
        most = max(len(by_account.of(other.id)) / other.weight for other in by_account.ledgers())
        return [ledger for ledger in ledgers if not slots[ledger.id] or (slots[ledger.id] + 1) / ledger.weight <= most]

    def admit_from(self, step: Step, ledger: Ledger, now: float) -> Request | None:
        """Admit the first request of an account's queue that can have its blocks and a slot."""
        workload = self._workload
        slot_victim = None
        if self.slots_taken:
            if not self.who_may_have_a_slot([ledger]):
                return None
            if len(workload.running) >= self._max_running + self._max_running // EXTRA_SLOTS:
                slot_victim = self._slot_victim(ledger)
                if slot_victim is None:
                    return None
        room = self._pool.accounts.room(ledger)
        queue = workload.waiting.of(ledger.id)
        if not queue or self._saving.holds_back(queue[0], step.number):
            return None
        only_head = self._blocked.still(ledger, room)
        if only_head:
            self._saving.waits(queue[0], step.number)
            if not self._may_preempt(step, queue[0], room):
                return None
            queue = queue[:1]
        look = Look(self._pool.total)
        for position, request in enumerate(queue):
            request.tried = True
            if workload.rows and workload.rows + request.width > self._most_rows:
                return None
            lacking = self._lacking(step, request, room, may_preempt=position == 0)
            if lacking is None:
                if slot_victim is not None and slot_victim.state is RequestState.RUNNING:
                    workload.preempt(slot_victim, step, ledger)
                for earlier in queue[:position]:
                    earlier.passed += 1
                self._admit(step, request, now)
                return request
            look.saw(request, lacking)
            if request.passed >= MAX_PASSED or position >= MAX_PASSED:
                break
            if room < LEAST_BLOCKS and ledger.active:
                look.least = min(look.least, LEAST_BLOCKS)
                break
        if not only_head:
            self._blocked.remember(ledger, look)
        self._saving.waits(queue[0], step.number)
        return None

    def _may_preempt(self, step: Step, head: Request, room: int) -> bool:
        """Whether what the head of a queue lacks may be had from others."""
        needed = self._least_need(head)
        return room < needed and self._workload.may_make_room(step, head, needed)

    def _admit(self, step: Step, request: Request, now: float) -> None:
        assert request.match is not None
        run = request.match.run
        self._workload.start(request)
        self._arrival.bring(step, request, run, now)
        self._saving.admitted(request)

    def _slot_victim(self, ledger: Ledger) -> Request | None:
        """All slots are taken: whose slot an account without any may take, from the account with most per weight."""
        by_account = self._workload.running_by_account
        counts = [(len(by_account.of(other.id)), other) for other in by_account.ledgers()]
        slots, richest = max(counts, key=lambda pair: pair[0] / pair[1].weight)
        if (slots - 1) / richest.weight < 1 / ledger.weight:
            return None
        for request in reversed(by_account.of(richest.id)):
            if request.since_admission >= QUANTUM and not request.loading:
                return request
        return None

    def _lacking(self, step: Step, request: Request, room: int, *, may_preempt: bool) -> int | None:
        """None if the whole known context plus one block per sequence can be had, if need be by preemption; else how
        many blocks the account would have to have room for, at least.
        """
        if request.swap is not None and request.swap.stowed is None:
            return self._pool.total  # still on its way out
        least = self._least_need(request)
        enough = least + self._workload.headroom(request.ledger, least)
        if room < enough and not (may_preempt and self._workload.may_make_room(step, request, least)):
            return least
        needed = self._needed(request)
        if room >= needed:
            return None if room >= needed + self._workload.headroom(request.ledger, needed) else needed
        if not request.ledger.active and needed > self._pool.accounts.effective_limit(request.ledger):
            if not self._awaits_prefix(request):
                self._never_comes(step, request)
            return needed
        if not may_preempt or not self._workload.make_room(step, request, needed):
            return needed
        # A victim may have shared prefix blocks with the request: they are cached now, and waking them counts.
        return None if self._pool.accounts.room(request.ledger) >= self._needed(request) else needed

    def _never_comes(self, step: Step, request: Request) -> None:
        """It needs more than its account can have. One that has answers: they shared more when they had grown to the
        limit than they can when they are computed again. Else what it counted on, a published prefix, is not there.
        """
        if request.begun:
            if request not in step.exhausted:
                step.exhausted.append(request)
            return
        try:
            self.refuse_if_never(request, request.ledger)
        except RequestRefused as refusal:
            step.refused[request] = refusal.error

    def _awaits_prefix(self, request: Request) -> bool:
        """Whether it begins with a published prefix that is not computed yet: with it, it needs less."""
        chain = request.sequences[0].chain
        return bool(self._workload.publishing) and chain is not None and self._published(request) > chain.public

    def _least_need(self, request: Request) -> int:
        """No more than ``_needed``, in no time: what was found last, unless more can have been cached since."""
        match = request.match
        if match is None or self._goes_on(request):
            return 1
        least = match.needed - match.asleep
        return least if request.ledger.active else min(least, self._pool.accounts.effective_limit(request.ledger))

    def _needed(self, request: Request) -> int:
        """Blocks that the request's account has to have room for now."""
        match = request.match
        if match is None or self._goes_on(request) or not match.is_valid():
            leader = request.sequences[0]
            assert leader.chain is not None
            run = [] if request.forgotten else self._pool.match(leader.chain, leader.tokens)
            match = request.match = Match(run)
        # What was swapped out takes what is in the pool, and the rest from the host alone.
        awake = match.awake(len(match.run) if request.swap is None else resident(match.run))
        needed = self._arrival.blocks(request) - awake
        if not request.ledger.active:
            # One that had grown to the very limit comes back without its spare blocks.
            least = needed - len(request.sequences)
            needed = min(needed, max(least, self._pool.accounts.effective_limit(request.ledger)))
        match.needed, match.asleep = needed, len(match.run) - awake
        return needed

    def _goes_on(self, request: Request) -> bool:
        """Whether the block after the match can be found by now."""
        key = request.next_key
        return key is not None and self._pool.index.holds(key)
