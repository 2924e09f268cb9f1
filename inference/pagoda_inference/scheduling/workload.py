"""The live requests, waiting and running, and the verbs that move them. What the scheduler's parts share."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from typing import TYPE_CHECKING

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.protocol import Error
from pagoda_inference.scheduling.fairness import VirtualTokenCounters
from pagoda_inference.scheduling.preemption import PreemptionPlanner, gives_way
from pagoda_inference.scheduling.queues import BY_ORDER, RequestsByAccount
from pagoda_inference.scheduling.recent import RecentAccounts
from pagoda_inference.scheduling.sequence import Request, RequestState, Sequence, Swap
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.scheduling.swapping import PreemptionCost

if TYPE_CHECKING:
    from pagoda_inference.kv.tiers.tiers import Stowed


HEADROOM = 0.5
"""Blocks for each running sequence that are left to what runs when another request comes."""


class RequestRefused(Exception):
    """The request can never run as things are, or the queue is full. ``error`` has the numbers and what to do."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class Workload:
    """Every request is in ``waiting`` or ``running`` until it is removed; only the running hold blocks.

    running: in order, oldest first. publishing: published prefixes that are being computed. ready: requests whose
    blocks have arrived from a tier since the last step.
    """

    def __init__(
        self, pool: Pool, counters: VirtualTokenCounters, transfers: Transfers | None, cost: PreemptionCost
    ) -> None:
        self.pool = pool
        self.counters = counters
        self.transfers = transfers if transfers is not None and transfers.enabled else None
        self.cost = cost
        self.waiting = RequestsByAccount()
        self.running: list[Request] = []
        self.running_by_account = RequestsByAccount()
        self.ready: list[Request] = []
        self.publishing: list[Request] = []
        self._recent = RecentAccounts()
        self.batch_running: list[Request] = []
        self.rows = 0
        """Sequences that the running requests have, or will have when their prompts are done."""
        self._excesses: tuple[float, float] | None = None
        self._failed: tuple[int, float] | None = None
        """Blocks short, and excess to be, of a taker that no plan was found for since requests last moved."""
        self._no_plan: dict[str, tuple[int, tuple[int, float]]] = {}
        """Account -> the least that no plan was found for since requests last moved, and for whom."""

    # --- looking ------------------------------------------------------------------------------------------------------

    def ledger(self, account: str) -> Ledger:
        """The account's ledger; raises RequestRefused for an unknown account."""
        ledger = self.pool.accounts.find(account)
        if ledger is self.pool.accounts.public:
            raise RequestRefused(
                Error("unknown_account", f"The account {account} is the engine's own, of published prefixes alone.")
            )
        if ledger is None:
            raise RequestRefused(
                Error("unknown_account", "The engine does not know this tenant (yet). Try again in a few seconds.")
            )
        return ledger

    def busy(self) -> list[Ledger]:
        """Ledgers of accounts with requests, running or waiting."""
        ledgers = {ledger.id: ledger for ledger in self.running_by_account.ledgers()}
        ledgers.update((ledger.id, ledger) for ledger in self.waiting.ledgers())
        return list(ledgers.values())

    def shared(self, now: float) -> bool:
        """Whether more than one account has requests, or had new ones of late."""
        return self._recent.shared({*self.running_by_account.accounts(), *self.waiting.accounts()}, now)

    def headroom(self, ledger: Ledger, needed: int) -> int:
        """Blocks beyond the ``needed`` that a request of the account leaves to those that run when it comes.

        They are about to grow: a pool filled to the last block would have to preempt for their next ones. Cached blocks
        will do. An account's first request leaves none, and what a reservation promises is there at once.
        """
        if ledger.active + needed <= ledger.reservation or not self.running_by_account.of(ledger.id):
            return 0
        return int(self.rows * HEADROOM)

    # --- moving -------------------------------------------------------------------------------------------------------

    def queue(self, request: Request, ledger: Ledger) -> None:
        """A new request waits."""
        request.ledger = ledger
        for sequence in request.sequences:
            chain = sequence.chain = self.pool.chain(request.account, request.scope)
            # Hashed as it comes, once: steps only look up.
            chain.align(sequence.tokens, (len(sequence.tokens) - 1) // self.pool.block_size)
            chain.extend(sequence.tokens, len(sequence.tokens) // self.pool.block_size)
        self.counters.saw_prompt(request.prompt_length)
        self.waiting.add(request)
        self._recent.saw(request.account, request.arrival)

    def start(self, request: Request) -> None:
        """From waiting to running; the caller gives it its tables."""
        self.waiting.remove(request)
        request.state = RequestState.RUNNING
        request.admitted_with = request.longest
        request.passed = 0
        request.match = None
        request.rows = request.width
        request.ledger.rows += request.rows
        self.rows += request.rows
        insort(self.running, request, key=BY_ORDER)
        self.running_by_account.add(request)
        if request.is_batch:
            self.batch_running.append(request)
        self._moved()

    def remove(self, request: Request) -> int:
        """Take a request out in any state and give its blocks back; returns how many. Doing it again does nothing."""
        if request.state is RequestState.FINISHED:
            return 0
        if request.state is RequestState.WAITING:
            self.waiting.remove(request)
        else:
            self._leave(request)
        request.state = RequestState.FINISHED
        self.drop_swap(request)
        freed = self._free(request)
        if not self.waiting.of(request.account) and not self.running_by_account.of(request.account):
            self.counters.left(request.ledger)
        return freed

    def preempt(
        self, request: Request, step: Step | None = None, taker: Ledger | None = None, *, at_once: bool = False
    ) -> None:
        """Take a running request's blocks. It waits at its old place, and is computed again but for what is still
        cached, or brought back from the host. ``taker``: whom it is for, if for anybody. ``at_once``: the blocks cannot
        wait for a copy.
        """
        computed = max(sequence.computed for sequence in request.sequences)
        request.recompute_until = max(request.recompute_until, computed)
        if taker is not request.ledger:
            request.free_until = max(request.free_until, computed)
        copies = step is not None and self._withdraw(request, step)
        kind = "swap" if not (copies or at_once) and self._swap_out(request) else "recompute"
        request.ledger.preemptions[kind] += 1
        self._free(request)
        self._leave(request)
        request.preemptions += 1
        request.state = RequestState.WAITING
        self.waiting.add(request)

    def make_room(self, step: Step, taker: Request, needed: int) -> bool:
        """Whether the taker's account can make ``needed`` more blocks active, if need be by preempting others.

        Where the victims' blocks have to be copied first the room comes later, and the answer is no for now.
        """
        accounts, ledger = self.pool.accounts, taker.ledger
        if accounts.room(ledger) >= needed:
            return True
        if not self.may_make_room(step, taker, needed):
            return False
        leaving = self.transfers is not None and self.transfers.leaving > 0
        planner = PreemptionPlanner(
            self.pool, self.running, self.running_by_account, self.batch_running, any_leaving=leaving
        )
        victims = planner.plan(taker, needed)
        if victims is None:
            taker.plan_after = step.number + planner.again_in
            self._no_plan[ledger.id] = (needed, taker.order)
            self._remember_failure(taker, needed)
            return False
        for victim in victims:
            self.preempt(victim, step, ledger)
        return accounts.room(ledger) >= needed

    def may_make_room(self, step: Step, taker: Request, needed: int) -> bool:
        """A quick no where preemption cannot help the taker."""
        if taker.is_batch or step.number < taker.plan_after:
            return False  # batch work never preempts
        failed = self._no_plan.get(taker.account)
        if failed is not None and needed >= failed[0] and taker.order >= failed[1]:
            return False
        return not self._is_hopeless(taker, needed)

    def _remember_failure(self, taker: Request, needed: int) -> None:
        """No plan for this taker: nor is there one for others who are short of more and will have more."""
        short = needed - self.pool.accounts.room(taker.ledger)
        excess = taker.ledger.active_excess_with(needed)
        if self._failed is None or (short <= self._failed[0] and excess <= self._failed[1]):
            self._failed = (short, excess)

    # --- chunks -------------------------------------------------------------------------------------------------------

    def schedule(self, step: Step, sequence: Sequence, count: int) -> None:
        """Add the next ``count`` tokens of a prompt to the step, and charge what of them is new input."""
        request = sequence.request
        start, end = sequence.computed, sequence.computed + count
        chunk = ScheduledChunk(sequence, start, count, end == len(sequence.tokens) and not request.publishes)
        prompt_end = min(end, sequence.prompt_length)
        chunk.charged = max(0, prompt_end - max(start, request.recompute_until))
        chunk.priced = max(0, prompt_end - max(start, request.free_until))
        self._charge(chunk, 1)
        step.chunks.append(chunk)

    def refund(self, chunk: ScheduledChunk) -> None:
        """The chunk was not computed after all."""
        self._charge(chunk, -1)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _charge(self, chunk: ScheduledChunk, sign: int) -> None:
        request = chunk.sequence.request
        if chunk.charged and not request.publishes:
            request.ledger.tokens_in += sign * chunk.charged
        if chunk.priced and not request.publishes:
            self.counters.charge_input(request.ledger, sign * chunk.priced)

    def _is_hopeless(self, taker: Request, needed: int) -> bool:
        """A quick no, before anything is planned."""
        own = self.running_by_account.of(taker.account)
        if own and gives_way(own[-1], taker):
            return False
        if (
            self._failed is not None
            and needed - self.pool.accounts.room(taker.ledger) >= self._failed[0]
            and taker.ledger.active_excess_with(needed) >= self._failed[1]
        ):
            return True
        if self.transfers is not None and self.transfers.leaving:
            return False
        if self._excesses is None:
            ranked = sorted((ledger.active_excess for ledger in self.running_by_account.ledgers()), reverse=True)
            self._excesses = (ranked[0] if ranked else 0.0, ranked[1] if len(ranked) > 1 else 0.0)
        return PreemptionPlanner.is_hopeless(self.pool, taker, needed, *self._excesses)

    def new_step(self) -> None:
        """What is remembered within a step is forgotten."""
        self._moved()

    def _moved(self) -> None:
        self._excesses = None
        self._failed = None
        self._no_plan.clear()

    def _leave(self, request: Request) -> None:
        self.rows -= request.rows
        request.ledger.rows -= request.rows
        self.running.remove(request)
        self.running_by_account.remove(request)
        if request.is_batch:
            self.batch_running.remove(request)
        request.decoding = request.loading = False
        request.steady = None
        if request in self.ready:
            self.ready.remove(request)
        self._moved()

    def _withdraw(self, request: Request, step: Step) -> bool:
        """Undo what this very step had planned for a request that is preempted now. Whether blocks were to be copied
        for it: then what its tables name is not written yet.
        """
        copies = False
        for chunk in step.without(request):
            self.refund(chunk)
            copies = copies or bool(chunk.copies)
        step.preempted.append(request)
        if request in step.admitted:
            step.admitted.remove(request)
            request.admitted_at = None
        return copies

    def _swap_out(self, request: Request) -> bool:
        """Begin to copy the request's computed blocks to the host, if that is cheaper than computing them again."""
        if self.transfers is None or request.loading or request.fork_at:
            return False
        places: list[list[int]] = []
        unique: dict[int, int] = {}
        holders: Counter[int] = Counter()
        for sequence in request.sequences:
            blocks = [] if sequence.table is None else sequence.table.blocks[: self.pool.blocks_for(sequence.computed)]
            places.append([unique.setdefault(id, len(unique)) for id in blocks])
            holders.update(blocks)
        computed = [sequence.computed for sequence in request.sequences]
        if not unique or self.cost.kind(len(unique), max(computed)) != "swap":
            return False
        swap = Swap(places, computed, len(unique))

        def ended(stowed: Stowed | None) -> None:
            if request.swap is not swap:
                if stowed is not None and self.transfers is not None:
                    self.transfers.discard(stowed)
            elif stowed is None:
                request.swap = None  # it is computed again
            else:
                swap.stowed = stowed
            self.waiting.changed(request)

        request.swap = swap
        if not self.transfers.stow(request.ledger, holders, ended):
            request.swap = None
            return False
        return True

    def drop_swap(self, request: Request) -> None:
        """What it had on the host is not needed any more."""
        if request.swap is not None and request.swap.stowed is not None and self.transfers is not None:
            self.transfers.discard(request.swap.stowed)
        request.swap = None

    def _free(self, request: Request) -> int:
        freed = 0
        for sequence in request.sequences:
            if sequence.table is not None:
                freed += self.pool.free(sequence.table)
                sequence.table = None
            sequence.computed = 0
        return freed
