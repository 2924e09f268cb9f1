"""Decoding: one more token for everybody, and who gives way when blocks run out."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.scheduling.fairness import OUTPUT_PRICE
from pagoda_inference.scheduling.queues import BY_ORDER
from pagoda_inference.scheduling.sequence import Request
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.scheduling.workload import Workload


class Decodes:
    """Schedules the decoding requests of a step."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._pool = workload.pool
        self._turns: dict[Request, int] = {}
        """Step in which each had its turn last, while not everybody has one in every step."""

    def schedule(self, step: Step, most: int | None = None) -> None:
        """One token for every decoding sequence, the oldest request first.

        ``most``: sequences that there is time for. Where there are more they take turns.
        """
        paused = self._paused(step)
        turn = self._turn(step, most, paused)
        # Nearly all have room in their last block: nothing is to be looked at but that.
        steady = [chunk for request in turn if (chunk := request.steady) is not None and chunk.start < chunk.capacity]
        step.chunks = steady
        if len(steady) == len(turn):
            return
        at_end = [request for request in turn if (chunk := request.steady) is None or chunk.start >= chunk.capacity]
        # Making room for one may take others of them: these decode no more.
        stalled = [request for request in at_end if request.decoding and not self._decode(step, request)]
        if stalled:
            self._unblock(step, {request.account for request in stalled if request.decoding})

    def _turn(self, step: Step, most: int | None, paused: set[Ledger]) -> list[Request]:
        """Whose turn it is, in order: all, or as many as make ``most`` sequences, at least one request."""
        decoding = [request for request in self._workload.running if request.decoding]
        if paused:
            decoding = [request for request in decoding if request.ledger not in paused]
        if most is None:
            return decoding
        if sum([len(request.sequences) for request in decoding]) <= most:
            return decoding
        chosen = self._fairly(decoding, most)
        self._turns = {request: self._turns.get(request, 0) for request in decoding}
        self._turns.update((request, step.number) for request in chosen)
        return sorted(chosen, key=BY_ORDER)

    def _fairly(self, decoding: list[Request], most: int) -> list[Request]:
        """Turn by turn for the account with the least service; within it for who has waited longest."""
        own: dict[str, list[Request]] = {}
        for request in sorted(decoding, key=lambda request: self._turns.get(request, 0), reverse=True):
            own.setdefault(request.account, []).append(request)
        heap = [(requests[0].ledger.service, id) for id, requests in own.items()]
        heapify(heap)
        chosen: list[Request] = []
        while heap and (most > 0 or not chosen):
            service, id = heappop(heap)
            request = own[id].pop()
            sequences = len(request.sequences)
            if sequences > most and chosen:
                break
            most -= sequences
            chosen.append(request)
            if own[id]:
                heappush(heap, (service + OUTPUT_PRICE * sequences / request.ledger.weight, id))
        return chosen

    def _paused(self, step: Step) -> set[Ledger]:
        """Accounts too far ahead of another that is backlogged: see ``fairness``."""
        if not self._workload.counters.backlogged:
            return set()
        decoding = [(ledger, ledger.rows) for ledger in self._workload.running_by_account.ledgers()]
        paused = self._workload.counters.too_far_ahead(decoding)
        step.paused = bool(paused)
        return paused

    def _decode(self, step: Step, request: Request) -> bool:
        """Schedule one more token for each sequence, making room by preemption if the rules allow it."""
        if not self._has_room(step, request):
            return False
        for sequence in request.sequences:
            table = sequence.table
            assert table is not None
            copies = self._pool.append(table, sequence.computed, sequence.computed + 1)
            chunk = ScheduledChunk(sequence, sequence.computed, 1, True)
            step.chunks.append(chunk)
            if copies:
                chunk.copies = copies
            elif len(request.sequences) == 1 and not request.candidates:
                chunk.capacity = table.capacity
                request.steady = chunk
        return True

    def _has_room(self, step: Step, request: Request) -> bool:
        """Whether the request's next tokens have their blocks, if need be by preemption."""
        if len(request.sequences) == 1 and self._pool.accounts.room(request.ledger) > 0:
            return True  # one block at most: for most requests that is all there is to know
        growth = self._growth(request)
        return not growth or self._workload.make_room(step, request, growth)

    def _growth(self, request: Request) -> int:
        """Blocks that the request's next tokens take.

        Of several sequences that are about to write into one shared block, the last to write keeps it.
        """
        if len(request.sequences) == 1:
            sequence = request.sequences[0]
            assert sequence.table is not None
            return self._pool.needed(sequence.table, sequence.computed, sequence.computed + 1)
        tables = [(s.table, s.computed) for s in request.sequences if s.table is not None]
        needed = sum(self._pool.needed(table, computed, computed + 1) for table, computed in tables)
        writers: dict[int, int] = {}
        for table, computed in tables:
            place = computed // self._pool.block_size
            if table.forked and place < len(table.blocks):
                writers[table.blocks[place]] = writers.get(table.blocks[place], 0) + 1
        return needed - sum(1 for id, count in writers.items() if self._pool.block(id).references == count > 1)

    def _unblock(self, step: Step, accounts: set[str]) -> None:
        """Progress: where nobody of an account can go on, its youngest gives way until one can; the oldest never does.

        A request left alone at its account's effective limit can never grow: it is exhausted. One that waits for other
        accounts' blocks waits while they run; where nobody runs at all, the youngest of all gives way. While blocks are
        on their way to or from a tier, everybody waits for these.
        """
        for account in sorted(accounts):
            self._unblock_account(step, account)
        while not step.chunks and not step.exhausted and self._workload.running and not self._copying:
            oldest, *others = self._workload.running
            if any(not request.decoding for request in (oldest, *others)) or step.paused or self._decode(step, oldest):
                return
            others = self._workload.running[1:]  # making room may have taken some
            if self._copying:
                return
            if others:
                self._workload.preempt(others[-1], step, oldest.ledger)
            elif self._at_limit(oldest.ledger, self._growth(oldest)):
                step.exhausted.append(oldest)
            else:
                return

    @property
    def _copying(self) -> bool:
        return self._workload.transfers is not None and self._workload.transfers.in_flight

    def _copies_hold(self, ledger: Ledger) -> bool:
        return self._workload.transfers is not None and self._workload.transfers.holds(ledger)

    def _unblock_account(self, step: Step, account: str) -> None:
        ledger = self._workload.ledger(account)
        while not any(chunk.sequence.request.account == account for chunk in step.chunks):
            running = self._workload.running_by_account.of(account)
            if not running or any(not request.decoding for request in running):
                return
            if self._decode(step, running[0]) or not self._at_limit(ledger, self._growth(running[0])):
                return  # it goes on, or waits for other accounts
            if ledger.leaving or self._copies_hold(ledger):
                return  # it waits for what is being copied
            if len(running) == 1:
                step.exhausted.append(running[0])
                return
            self._workload.preempt(running[-1], step, ledger)

    def _at_limit(self, ledger: Ledger, needed: int) -> bool:
        return ledger.active + needed > self._pool.accounts.effective_limit(ledger)
