"""The scheduler: iteration-level scheduling with a token budget, over the pool's accounts.

Every step it lets all decoding sequences take one token, then spends what is left of the budget on prompts, in chunks:
always for the account with the least service, its half-computed prompts first, then the head of its queue. A request
is admitted only when its whole known context plus one block per sequence can be had, and takes those blocks at once,
so that two half-computed prompts can never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf

from pagoda_inference.kv import invariants
from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.model.backend import Accepted, Candidates, ChunkError, Result
from pagoda_inference.protocol import Account, Error
from pagoda_inference.scheduling.admission import Admission
from pagoda_inference.scheduling.ahead import Ahead
from pagoda_inference.scheduling.branching import Branching, settle
from pagoda_inference.scheduling.decodes import Decodes
from pagoda_inference.scheduling.fairness import VirtualTokenCounters
from pagoda_inference.scheduling.limits import UNLIMITED, StepLimits
from pagoda_inference.scheduling.prefills import Prefills
from pagoda_inference.scheduling.publications import Publication, Publications
from pagoda_inference.scheduling.quotas import Ended, apply_accounts
from pagoda_inference.scheduling.report import Report, make_report
from pagoda_inference.scheduling.sequence import Request, RequestState, Sequence
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.scheduling.swapping import PreemptionCost
from pagoda_inference.scheduling.workload import RequestRefused, Workload

__all__ = ["Produced", "RequestRefused", "Scheduler"]

Produced = list[tuple[Sequence, int | Candidates | ChunkError]]


class Scheduler:
    """Decides each step's chunks. Used from the engine's thread only."""

    def __init__(
        self,
        pool: Pool,
        *,
        token_budget: int = 512,
        max_running: int = 64,
        max_waiting_per_account: int = 1024,
        transfers: Transfers | None = None,
        cost: PreemptionCost | None = None,
    ) -> None:
        if not 1 <= max_running <= token_budget:
            raise ValueError("the token budget of a step must cover one token for each running request")
        self.pool = pool
        self.token_budget = token_budget
        self.max_waiting_per_account = max_waiting_per_account
        self.transfers = transfers
        self._workload = Workload(pool, VirtualTokenCounters(token_budget), transfers, cost or PreemptionCost())
        self._admission = Admission(self._workload, max_running, token_budget)
        self._decodes = Decodes(self._workload)
        self._prefills = Prefills(self._workload, self._admission)
        self._branching = Branching(self._workload)
        self._ahead = Ahead(self._workload)
        self.publications = Publications(self._workload)
        self.waiting = self._workload.waiting
        self.running = self._workload.running
        self._steps = 0

    @property
    def has_work(self) -> bool:
        return bool(self.running or len(self.waiting) or self._workload.publishing)

    def shared(self, now: float) -> bool:
        """Whether steps should be short, because more than one tenant is asking for something."""
        return self._workload.shared(now)

    # --- requests come and go -----------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestRefused, having changed nothing."""
        ledger = self._workload.ledger(request.account)
        self._admission.refuse_if_never(request, ledger)
        if len(self.waiting.of(request.account)) >= self.max_waiting_per_account:
            raise RequestRefused(
                Error(
                    "queue_full",
                    f"{self.max_waiting_per_account} requests of this tenant are waiting already. Try again later.",
                    {"waiting": self.max_waiting_per_account},
                )
            )
        self._workload.queue(request, ledger)

    def abort(self, request: Request) -> int:
        """Take a request out in any state and give its blocks back; returns how many. Doing it again does nothing."""
        return self._workload.remove(request)

    def finish(self, request: Request) -> int:
        """A request is done. Its full blocks stay cached for whoever comes back."""
        return self._workload.remove(request)

    def limit_reached(self, request: Request) -> Error:
        """What a request is told that is exhausted: it has grown to all that its account can have."""
        limit = self.pool.accounts.effective_limit(request.ledger)
        return Error(
            "kv_limit_exceeded",
            f"The answer ends here: it has grown to the {limit} KV blocks that this tenant can have. Go on in a new "
            "conversation, or ask the operator for a higher limit.",
            {"limit_blocks": limit, "block_size": self.pool.block_size},
        )

    def finish_sequence(self, sequence: Sequence) -> None:
        """One of several answers is done: its blocks are given back, the others go on."""
        self._branching.end(sequence)

    def branch(self, request: Request, picks: SequenceOf[tuple[int, int]]) -> None:
        """Beam search goes on with these: (index of the beam in ``request.sequences``, its next token)."""
        self._branching.branch(request, picks)

    def set_accounts(self, accounts: Iterable[Account], version: int, pool_blocks: int | None = None) -> Ended:
        """Put quotas in force at once. Returns the requests that ended with it and why; raises AccountsRefused."""
        ended = apply_accounts(self._workload, self._admission, accounts, version, pool_blocks)
        if self.transfers is not None:
            self.transfers.set_quotas(ledger for ledger in self.pool.accounts if not ledger.retired)
        return ended

    def publish(self, prefixes: SequenceOf[tuple[str, SequenceOf[int]]], now: float) -> tuple[list[Publication], Ended]:
        """Publish exactly these (id, tokens). Returns what becomes of each, and the requests that ended with it."""
        return self.publications.replace(prefixes, now), self._admission.end_what_never_fits()

    def purge(self, account: str, lineage: str) -> tuple[int, int]:
        """A conversation was deleted: see ``Pool.purge_lineage``. What still runs for it leaves nothing behind."""
        for request in (*self.running, *self.waiting):
            if lineage and request.lineage == lineage and request.account == account:
                request.forgotten = True
                request.match = None
        return self.pool.purge_lineage(account, lineage)

    def report(self) -> Report:
        """All accounts and totals, now."""
        return make_report(self._workload)

    def poll(self) -> None:
        """Take over what was copied between the tiers, when there is no step to schedule."""
        if self.transfers is not None:
            self.transfers.poll()

    def check(self) -> None:
        """Raise AssertionError unless the pool's invariants hold for what runs, is published and is being copied."""
        sequences = [sequence for request in self.running for sequence in request.sequences]
        tables = [sequence.table for sequence in sequences if sequence.table is not None]
        tables += [publication.table for publication in self.publications if publication.table is not None]
        invariants.check(self.pool, tables, self.transfers.copies() if self.transfers is not None else ())

    # --- a step -------------------------------------------------------------------------------------------------------

    def schedule(self, now: float, limits: StepLimits = UNLIMITED) -> Step:
        """Choose the next step's chunks, and take the blocks they need. ``now``: seconds on the caller's clock."""
        self._steps += 1
        self._workload.new_step()
        if (planned := self._ahead.take(limits)) is not None:
            return Step(self._steps, planned)
        step = Step(self._steps)
        if self.transfers is not None:
            self.transfers.poll()
            self._admission.arrival.take_ready(step, now)
        first = self._prefills.first_to_serve() if limits.limited else None
        self._decodes.schedule(step, self._most_decodes(limits, first))
        rows = len(step.chunks)
        budget = limits.tokens(rows, self.token_budget - rows)
        self._prefills.schedule(step, budget if first is None else min(budget, first), now)
        return step

    def plan_ahead(self, step: Step) -> None:
        """While ``step`` runs, choose the next one's chunks, if nothing but decoding is to be done: see ``Ahead``."""
        self._ahead.plan(step)

    def complete(self, step: Step, results: SequenceOf[Result], now: float) -> Produced:
        """Take over what a step computed: append the new tokens and make written blocks findable.

        Returns every sequence with its new token (with what beam search chooses from, for a beam), or with the error of
        its chunk: the caller finishes such a request. One whose drafts were accepted is there for each of its tokens.
        """
        produced: Produced = []
        commit, give = self.pool.commit, produced.append
        for chunk, result in zip(step.chunks, results, strict=True):
            sequence = chunk.sequence
            table = sequence.table
            if not chunk.capacity or table is None or result.__class__ is not int:
                self._complete(chunk, result, produced, now)
                continue
            computed = sequence.computed = chunk.start = chunk.start + 1
            if computed >= table.commit_at:
                commit(table, sequence.tokens, computed)
            sequence.tokens.append(result)
            table.account.produced += 1
            give((sequence, result))
        for ledger in self.pool.accounts:
            if ledger.produced:
                self._charge_output(ledger, ledger.produced)
                ledger.produced = 0
        return produced

    def _most_decodes(self, limits: StepLimits, first: int | None) -> int | None:
        """Sequences that there is time for, beside the prompts. ``first``: tokens of one that shall not wait."""
        if not limits.limited:
            return None
        if first is not None:
            return limits.decodes_beside_first(first)
        return limits.decodes(prompts=self._prefills.any_prompts)

    def _complete(self, chunk: ScheduledChunk, result: Result, produced: Produced, now: float) -> None:
        """A chunk that is not the next token of somebody who is decoding."""
        sequence = chunk.sequence
        request, table = sequence.request, sequence.table
        if request.publishes:
            self._publish_step(sequence, chunk.start + chunk.count, result)
            return
        if request.state is not RequestState.RUNNING or table is None:
            return  # aborted while the step ran
        if isinstance(result, ChunkError):
            produced.append((sequence, result))
            return
        if isinstance(result, Accepted):
            self._accept(chunk, table, result.tokens, produced)
            return
        sequence.computed = chunk.start + chunk.count
        self.pool.commit(table, sequence.tokens, sequence.computed)
        if result is not None:
            self._branching.take(sequence, result, produced)
        if not request.decoding:
            if request.first_token_at is None and result is not None:
                request.first_token_at = now
            settle(self.pool, request, sequence)

    def _accept(self, chunk: ScheduledChunk, table: BlockTable, tokens: SequenceOf[int], produced: Produced) -> None:
        """Several tokens at once. What was written for drafts behind them is written over by the next step."""
        sequence = chunk.sequence
        sequence.tokens += tokens
        sequence.computed = chunk.start = chunk.start + len(tokens)
        self.pool.commit(table, sequence.tokens, sequence.computed)
        table.account.produced += len(tokens)
        produced += [(sequence, token) for token in tokens]

    def may_decode(self, ledger: Ledger, tokens: int) -> bool:
        """Whether an account may get so many tokens more than one for each sequence in a step: see ``fairness``."""
        return not self._workload.counters.too_far_ahead([(ledger, ledger.rows + tokens)])

    def take_back(self, sequence: Sequence) -> None:
        """A token came behind its answer's end, and nobody is told it: nobody is charged for it either."""
        self._charge_output(sequence.request.ledger, -1)

    def _charge_output(self, ledger: Ledger, tokens: int) -> None:
        ledger.tokens_out += tokens
        self._workload.counters.charge_output(ledger, tokens)

    def fail(self, step: Step) -> None:
        """The step raised: nothing was computed. The requests stay as they were and are scheduled again."""
        for chunk in step.chunks:
            self._workload.refund(chunk)

    def _publish_step(self, sequence: Sequence, computed: int, result: Result) -> None:
        if sequence.request not in self._workload.publishing or sequence.table is None:
            return
        if isinstance(result, ChunkError):
            self.publications.failed(sequence.request, "the model failed on this prefix")
            return
        sequence.computed = computed
        self.pool.commit(sequence.table, sequence.tokens, computed)
        if computed == len(sequence.tokens):
            self.publications.computed(sequence.request)
