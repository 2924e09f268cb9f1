"""How an admitted request gets its blocks: what is cached, what a tier keeps, what was swapped out, and room for the
rest."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING

from pagoda_inference.kv.entry import Entry, resident
from pagoda_inference.kv.pool import PoolExhausted
from pagoda_inference.scheduling.branching import settle
from pagoda_inference.scheduling.sequence import Request, Sequence, Swap
from pagoda_inference.scheduling.step import Step
from pagoda_inference.scheduling.workload import Workload

if TYPE_CHECKING:
    from pagoda_inference.kv.tiers.tiers import Stowed


class Arrival:
    """Gives requests that have just been started their tables."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._pool = workload.pool

    def blocks(self, request: Request) -> int:
        """Blocks that the request's known context and one more per sequence take, cached or not."""
        blocks_for = self._pool.blocks_for
        leader, *others = request.sequences
        shared = self._shared_blocks(request)
        if request.swap is not None:
            swap = request.swap
            rest = sum(
                blocks_for(len(sequence.tokens)) - len(places)
                for sequence, places in zip(request.sequences, swap.places, strict=True)
            )
            return swap.blocks + rest + len(request.sequences)
        return (
            blocks_for(len(leader.tokens))
            + sum(blocks_for(len(sequence.tokens)) - shared for sequence in others)
            + request.width
        )

    def bring(self, step: Step, request: Request, run: list[Entry], now: float) -> None:
        """Give a request its tables. ``run``: what admission found for it in the index. Where blocks come from a tier
        it is loading until they are there.
        """
        if request.swap is not None and request.swap.stowed is not None:
            self._bring_back(request, request.swap, request.swap.stowed, run)
            return
        request.swap = None
        leader = request.sequences[0]
        request.fork_at = self._shared_blocks(request) * self._pool.block_size
        self._open(request, leader)
        assert leader.table is not None
        assert leader.chain is not None
        here = resident(run)
        if not self._loads(len(run) - here):
            run = run[:here]
        loads = self._pool.adopt(leader.table, run) if run else []
        self._pool.append(leader.table, len(run) * self._pool.block_size, len(leader.tokens))
        self._take_for_others(request)
        leader.computed = here * self._pool.block_size
        if loads:
            self._load(request, leader, run, loads)
        else:
            self._arrived(step, request, now)

    def _shared_blocks(self, request: Request) -> int:
        """Full blocks that all its sequences begin with."""
        several = len(request.sequences) > 1
        return _common_prefix(request.sequences) // self._pool.block_size if several else 0

    def _take_for_others(self, request: Request) -> None:
        """Blocks for what the other sequences do not share with the first, at once: see ``settle``."""
        for other in request.sequences[1:]:
            other.chain = self._pool.chain(request.account, request.scope)
            self._open(request, other)
            assert other.table is not None
            self._pool.append(other.table, 0, len(other.tokens) - request.fork_at)

    def _open(self, request: Request, sequence: Sequence) -> None:
        if request.forgotten:  # it begins with nothing of what can be found, published blocks among it
            sequence.chain = self._pool.chain(request.account, request.scope)
        assert sequence.chain is not None
        sequence.table = self._pool.open_table(request.ledger, sequence.chain, request.lineage)
        if request.forgotten:
            sequence.table.found(0, None)

    def _loads(self, blocks: int) -> bool:
        workload = self._workload
        return (
            blocks > 0
            and workload.transfers is not None
            and workload.cost.loading_pays(blocks, blocks * self._pool.block_size)
        )

    # --- from a tier --------------------------------------------------------------------------------------------------

    def _load(self, request: Request, leader: Sequence, run: list[Entry], loads: list[tuple[Entry, int]]) -> None:
        transfers, table = self._workload.transfers, leader.table
        assert transfers is not None
        assert table is not None
        request.loading = True

        def done(arrived: int) -> None:
            if leader.table is not table:
                return  # aborted or preempted meanwhile
            whole = arrived == len(loads)
            reached = len(run) if whole else table.blocks.index(loads[arrived][1])
            request.loading = False
            leader.computed = reached * self._pool.block_size
            self._pool.commit(table, leader.tokens, leader.computed)
            if not whole:
                self._compute_rest(request, leader, reached)
            if request.loading is False and leader.table is table:
                self._workload.ready.append(request)

        transfers.load(loads, done)

    def _compute_rest(self, request: Request, leader: Sequence, reached: int) -> None:
        """Not all of a load arrived intact: what is missing is computed, in blocks of its own."""
        table = leader.table
        assert table is not None
        try:
            self._pool.truncate(table, reached)
            self._pool.append(table, leader.computed, len(leader.tokens))
        except PoolExhausted:
            self._workload.preempt(request)

    # --- from a swap --------------------------------------------------------------------------------------------------

    def _bring_back(self, request: Request, swap: Swap, stowed: Stowed, run: list[Entry]) -> None:
        """Rebuild the tables of a swapped request: findable blocks as they are, the rest from the host."""
        transfers = self._workload.transfers
        assert transfers is not None
        blocks: dict[int, int] = {}
        places: list[tuple[int, int]] = []
        reached: list[int] = []
        for sequence, own, computed in zip(request.sequences, swap.places, swap.computed, strict=True):
            self._open(request, sequence)
            if sequence is not request.sequences[0] and not request.forgotten:
                assert sequence.chain is not None
                run = self._pool.match(sequence.chain, sequence.tokens)
            found = self._rebuild(sequence, own, run, blocks, places)
            reached.append(max(computed, found * self._pool.block_size))
        for sequence, own, computed in zip(request.sequences, swap.places, reached, strict=True):
            assert sequence.table is not None
            self._pool.append(sequence.table, max(computed, len(own) * self._pool.block_size), len(sequence.tokens))
            sequence.table.forked = len(request.sequences) > 1
        tables = [sequence.table for sequence in request.sequences]
        request.loading = True

        def done(intact: bool) -> None:
            if [sequence.table for sequence in request.sequences] != tables or request.swap is not swap:
                return
            self._workload.drop_swap(request)
            request.loading = False
            if not intact:
                self._workload.preempt(request)
                return
            for sequence, computed in zip(request.sequences, reached, strict=True):
                assert sequence.table is not None
                sequence.computed = computed
                self._pool.commit(sequence.table, sequence.tokens, computed)
            self._workload.ready.append(request)

        transfers.unstow(stowed, places, done)

    def _rebuild(
        self,
        sequence: Sequence,
        own: SequenceOf[int],
        run: list[Entry],
        blocks: dict[int, int],
        places: list[tuple[int, int]],
    ) -> int:
        """``blocks``: where each stowed block is by now; ``places``: what has to be copied. How many blocks were found
        in the pool: more than the sequence had, where others have got further meanwhile.
        """
        pool, table = self._pool, sequence.table
        assert table is not None
        here = resident(run)
        if here:
            pool.adopt(table, run[:here])
        for index, id in zip(own, table.blocks, strict=False):
            blocks.setdefault(index, id)
        for index in own[here:]:
            if index in blocks:
                pool.share(table, [blocks[index]])
            else:
                pool.append(table, table.capacity, table.capacity + 1)
                blocks[index] = table.blocks[-1]
                places.append((index, blocks[index]))
        return here

    def _arrived(self, step: Step, request: Request, now: float) -> None:
        """All its blocks are there: it can be computed."""
        settle(self._pool, request, request.sequences[0])
        if request.admitted_at is None:
            self._first_admission(step, request, now)

    def take_ready(self, step: Step, now: float) -> None:
        """Requests whose blocks have arrived since the last step."""
        ready = list(self._workload.ready)
        self._workload.ready.clear()
        for request in ready:
            self._arrived(step, request, now)

    def _first_admission(self, step: Step, request: Request, now: float) -> None:
        """Count hits once: tokens found again after a preemption are nobody's cache."""
        request.admitted_at = now
        ledger = request.ledger
        request.cached_tokens = request.sequences[0].computed
        ledger.queue_wait_s += max(0.0, now - request.arrival)
        ledger.hit_tokens += request.cached_tokens
        ledger.queried_tokens += request.prompt_length
        step.admitted.append(request)


def _common_prefix(sequences: SequenceOf[Sequence]) -> int:
    """Tokens that all the sequences begin with, leaving each at least one to compute."""
    shortest = min(len(sequence.tokens) for sequence in sequences) - 1
    first = sequences[0].tokens
    for position in range(sequences[0].prompt_length, shortest):
        if any(sequence.tokens[position] != first[position] for sequence in sequences):
            return position
    return shortest
