"""What one block costs: the time to take and give it back, and the memory it keeps.

A pool of 32 accounts is used in two states: *free* (blocks come from the free list and go back to it) and *cached*
(every block is cached and findable, so that each one taken evicts another). One sample takes and gives back 256 blocks
in calls of 1 or of 32 blocks, on tables of one account after the other; making tables and hashing their tokens is not
in the times.
"""

from __future__ import annotations

import gc
import itertools
import time
import tracemalloc
from collections.abc import Iterator

from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.pool import Pool
from pagoda_inference.protocol import Account

ACCOUNTS = 32
BATCH = 256
CALLS = (1, 32)
BLOCK_SIZE = 16
FILL_BLOCKS = 64
FIRST_TOKEN, TOKENS = 1000, 1 << 16


class Blocks:
    """A pool of ``total`` blocks, all free or (``cached``) all cached and findable."""

    def __init__(self, total: int, *, cached: bool) -> None:
        self.pool = Pool(total, BLOCK_SIZE, secret=b"bench")
        names = [f"tenant-{index}" for index in range(ACCOUNTS)]
        self.pool.accounts.replace([Account(name) for name in names], 1)
        self._cached = cached
        self._accounts = itertools.cycle(
            [ledger for name in names if (ledger := self.pool.accounts.find(name)) is not None]
        )
        self._content = itertools.count()
        if cached:
            self._fill()

    def sample(self, blocks_per_call: int) -> float:
        """Seconds to take and give back one block, in calls of so many."""
        tables = [self._table() for _ in range(BATCH // blocks_per_call)]
        append, free = self.pool.append, self.pool.free
        end = blocks_per_call * BLOCK_SIZE
        begin = time.perf_counter()
        for table in tables:
            append(table, 0, end)
        seconds = time.perf_counter() - begin
        if self._cached:
            for table in tables:
                self._commit(table, end)
        begin = time.perf_counter()
        for table in tables:
            free(table)
        return (seconds + time.perf_counter() - begin) / BATCH

    def _fill(self) -> None:
        while left := self.pool.free_blocks:
            table = self._table()
            end = min(left, FILL_BLOCKS) * BLOCK_SIZE
            self.pool.append(table, 0, end)
            self._commit(table, end)
            self.pool.free(table)

    def _table(self) -> BlockTable:
        ledger = next(self._accounts)
        return self.pool.open_table(ledger, self.pool.chain(ledger.id, f"tenant:{ledger.id}"))

    def _commit(self, table: BlockTable, tokens: int) -> None:
        """Content that nobody had before: its number in two tokens, then ordinary ones."""
        high, low = divmod(next(self._content), TOKENS)
        content = [FIRST_TOKEN + high, FIRST_TOKEN + low, *range(FIRST_TOKEN, FIRST_TOKEN + tokens - 2)]
        self.pool.commit(table, content, tokens)


def times(sizes: list[int], samples: int, *, warm_up: int = 20) -> Iterator[tuple[int, str, int, list[float]]]:
    """(blocks of the pool, state, blocks per call, seconds per block of each sample).

    All pools are there at once and take turns, sample by sample, so that a slow moment of the machine hits all alike.
    """
    pools = {(size, state): Blocks(size, cached=state == "cached") for size in sizes for state in ("free", "cached")}
    cases = [(size, state, calls) for size, state in pools for calls in CALLS]
    found: dict[tuple[int, str, int], list[float]] = {case: [] for case in cases}
    gc.collect()
    for number in range(warm_up + samples):
        for case in cases:
            size, state, calls = case
            seconds = pools[size, state].sample(calls)
            if number >= warm_up:
                found[case].append(seconds)
    for case in cases:
        yield (*case, found[case])


def bytes_per_block(total: int) -> float:
    """Memory of a pool whose blocks are all cached and findable, per block, as the allocator was asked for it."""
    gc.collect()
    tracemalloc.start()
    try:
        blocks = Blocks(total, cached=True)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        assert len(blocks.pool.index) == total
    finally:
        tracemalloc.stop()
    return used / total
