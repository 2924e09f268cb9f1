"""The real scheduler and pool over a KV-echo memory: the next token is a hash of every KV entry read through the table.

A stale, aliased or foreign block changes the answer, so comparing outputs with ``expected`` tests the whole
bookkeeping.
"""

from __future__ import annotations

import hashlib
import itertools

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.invariants import check
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.prefix_index import Digest, chain_digest
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.scheduler import Scheduler
from pagoda_inference.scheduling.sequence import Request, RequestState, Sequence
from pagoda_inference.scheduling.step import Step

VOCABULARY = 4  # few tokens, so that prompts share prefixes


def next_token(entries: list[tuple[int, int]]) -> int:
    """The echo model: a hash of all (token, position) pairs in the KV."""
    return hashlib.blake2b(repr(entries).encode(), digest_size=1).digest()[0] % VOCABULARY


def prompt(length: int, seed: int = 0) -> list[int]:
    """Tokens that another seed gives otherwise."""
    return [(seed + index * index + index // 7) % VOCABULARY for index in range(length)]


class Simulation:
    """Drives a scheduler step by step; ``finished`` maps request id -> (request, reason)."""

    def __init__(
        self,
        blocks: int,
        block_size: int,
        *,
        accounts: list[Account] | None = None,
        token_budget: int = 16,
        max_running: int = 8,
        digest: Digest = chain_digest,
    ) -> None:
        self.pool = Pool(blocks, block_size, secret=b"test", digest=digest)
        self.scheduler = Scheduler(self.pool, token_budget=token_budget, max_running=max_running)
        if accounts is not None:
            self.scheduler.set_accounts(accounts, 1)
        self.memory: dict[tuple[int, int], tuple[int, int]] = {}
        self.finished: dict[str, tuple[Request, str]] = {}
        self.clock = 0.0
        self._verified: dict[str, int] = {}
        self._newly_finished: list[Request] = []
        self._ids = itertools.count()

    def ledger(self, account: str) -> Ledger:
        found = self.pool.accounts.find(account)
        assert found is not None
        return found

    def steps(self, count: int) -> None:
        """So many steps, all invariants checked after each."""
        for _ in range(count):
            self.step()
            self.check()

    def submit(
        self,
        account: str,
        prompt: list[int],
        max_tokens: int = 8,
        *,
        request_class: str = "interactive",
        scope: str | None = None,
    ) -> Request:
        """Queue a request; raises RequestRefused."""
        self.clock += 1
        request = Request.create(
            id=str(next(self._ids)),
            account=account,
            scope=scope or f"tenant:{account}",
            lineage="",
            request_class=request_class,
            arrival=self.clock,
            max_tokens=max_tokens,
            prompt=prompt,
            sampler=Sampler(),
        )
        self.scheduler.add(request)
        return request

    def step(self, *, fails: bool = False) -> Step:
        """One step of the engine: schedule, compute through the block tables, complete, finish who is done."""
        self.clock += 1
        step = self.scheduler.schedule(self.clock)
        for source, destination in step.copies:
            for offset in range(self.pool.block_size):
                if (source, offset) in self.memory:
                    self.memory[destination, offset] = self.memory[source, offset]
        if fails:
            self.scheduler.fail(step)
            return step
        results = [self._compute(chunk) for chunk in step.chunks]
        for sequence, _ in self.scheduler.complete(step, results, self.clock):
            if sequence.output_length >= sequence.request.max_tokens:
                self._finish(sequence.request, "stop")
        for request in step.exhausted:
            self._finish(request, "length")
        for request, error in step.refused.items():
            self._finish(request, error.code)
        return step

    def abort(self, request: Request) -> None:
        if request.state is not RequestState.FINISHED:
            self._finish(request, "cancelled")
        assert self.scheduler.abort(request) == 0  # again: nothing happens

    def set_accounts(self, accounts: list[Account], version: int) -> None:
        for request, error in self.scheduler.set_accounts(accounts, version):
            self.finished[request.id] = (request, error.code)

    def run(self, limit: int = 10_000) -> None:
        """Step until nothing is left; AssertionError if that takes more than ``limit`` steps."""
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            self.step()
            self.check()
        raise AssertionError(
            f"still at work after {limit} steps: {self.scheduler.running} {list(self.scheduler.waiting)}"
        )

    def check(self) -> None:
        """All invariants of the pool, and outputs so far equal to the model without a pool."""
        requests = [*self.scheduler.running, *self.scheduler.waiting]
        tables = [s.table for request in requests for s in request.sequences if s.table is not None]
        check(self.pool, tables)
        for request in [*requests, *self._newly_finished]:
            for sequence in request.sequences:
                self._check_output(sequence)
        self._newly_finished.clear()

    def _check_output(self, sequence: Sequence) -> None:
        """Tokens not looked at before are what the model answers without a pool."""
        begin = self._verified.get(sequence.request.id, sequence.prompt_length)
        for position in range(begin, len(sequence.tokens)):
            read = [(token, index) for index, token in enumerate(sequence.tokens[:position])]
            assert sequence.tokens[position] == next_token(read), f"{sequence.request}: a wrong block was read"
        self._verified[sequence.request.id] = len(sequence.tokens)

    def _finish(self, request: Request, reason: str) -> None:
        self.scheduler.finish(request)
        self.finished[request.id] = (request, reason)
        self._newly_finished.append(request)

    def _compute(self, chunk) -> int | None:
        size, table = self.pool.block_size, chunk.sequence.table.blocks
        for position in range(chunk.start, chunk.start + chunk.count):
            block = table[position // size]
            assert self.pool.block(block).references == 1, "a shared block is written"
            self.memory[block, position % size] = (chunk.sequence.tokens[position], position)
        if not chunk.sampled:
            return None
        read = [self.memory[table[p // size], p % size] for p in range(chunk.start + chunk.count)]
        return next_token(read)
