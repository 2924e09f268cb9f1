"""What must always hold between steps. Asserted at every step in debug builds, and after every action in property
tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.prefix_index import Entry


def check(pool: Pool, tables: Iterable[BlockTable]) -> None:
    """Raise AssertionError, saying what is broken, unless the pool is consistent with ``tables`` (all that exist)."""
    tables = list(tables)
    references = Counter(id for table in tables for id in table.blocks)
    blocks = pool.known_blocks()
    states = Counter("active" if b.references else "cached" if b.entry else "free" for b in blocks)
    for block in blocks:
        assert block.references == references[block.id], f"{block} is held by {references[block.id]} tables"
        assert (block.account is None) == (not block.references and block.entry is None), (
            f"{block}: charged iff not free"
        )
        evictable = block.account is not None and block.id in block.account.lru
        assert evictable == (block.references == 0 and block.entry is not None), f"{block}: evictable iff cached"
    assert pool.free_blocks == pool.total - states["active"] - states["cached"], "the free count is off"
    _check_accounts(pool)
    _check_index(pool)
    for table in tables:
        _check_table(pool, table)


def _check_accounts(pool: Pool) -> None:
    accounts = pool.accounts
    charged = Counter(block.account.id for block in pool.known_blocks() if block.account and block.references)
    for ledger in accounts:
        assert ledger.active == charged[ledger.id], f"{ledger.id}: {ledger.active} active, {charged[ledger.id]} charged"
        assert ledger.held <= ledger.limit, f"{ledger.id} holds {ledger.held} over its limit {ledger.limit}"
    held = sum(ledger.held for ledger in accounts)
    assert pool.free_blocks + held == pool.total, f"free {pool.free_blocks} + held {held} != total {pool.total}"
    assert accounts.committed == sum(max(ledger.active, ledger.reservation) for ledger in accounts), "committed is off"
    lendable = pool.free_blocks + sum(ledger.lendable for ledger in accounts)
    unmet = sum(max(0, ledger.reservation - ledger.held) for ledger in accounts)
    assert lendable >= unmet, f"reservations are out of reach: {lendable} can be had, {unmet} are unmet"


def _check_index(pool: Pool) -> None:
    entries = pool.index.entries()
    for entry in entries:
        assert entry.block.entry is entry, f"entry and {entry.block} disagree"
    findable = sum(1 for block in pool.known_blocks() if block.entry is not None)
    assert findable == len(entries), f"{findable} findable blocks, {len(entries)} entries"


def _check_table(pool: Pool, table: BlockTable) -> None:
    parent: Entry | None = None
    for index, id in enumerate(table.blocks):
        block = pool.block(id)
        assert block.account is table.account, f"{block} of another account in a table of {table.account.id}"
        if index < table.findable:
            assert block.entry is not None, f"{block} is not findable"
            assert block.entry.parent is (parent or table.chain.root), f"{block} has another parent"
            parent = block.entry
