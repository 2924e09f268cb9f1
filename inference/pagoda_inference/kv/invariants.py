"""What must always hold between steps. Asserted at every step in debug builds, and after every action in property
tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pagoda_inference.kv.block import Block
from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.entry import Entry, ScopeRoot
from pagoda_inference.kv.pool import Pool


def check(pool: Pool, tables: Iterable[BlockTable], copies: Iterable[Sequence[Block]] = ()) -> None:
    """Raise AssertionError, saying what is broken, unless the pool is consistent.

    tables: all that exist. copies: the blocks that each copy between tiers holds.
    """
    tables = list(tables)
    assert {id(table) for table in tables} == {id(table) for table in pool.tables}, "a table was lost"
    references = Counter(id for table in tables for id in table.blocks)
    references.update(block.id for blocks in copies for block in blocks)
    blocks = pool.known_blocks()
    states = Counter("active" if b.references else "cached" if b.entry else "free" for b in blocks)
    for block in blocks:
        assert block.references == references[block.id], f"{block} is held by {references[block.id]} tables and copies"
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
    shared = Counter(id(block.account) for block in pool.known_blocks() if block.references > 1)
    charged = Counter(id(block.account) for block in pool.known_blocks() if block.account and block.references)
    for ledger in accounts:
        active = charged[id(ledger)]
        assert ledger.shared == shared[id(ledger)], f"{ledger.id}: {ledger.shared} counted as shared"
        assert ledger.active == active, f"{ledger.id}: {ledger.active} active, {active} charged"
        assert ledger.held <= ledger.limit or ledger.retired, f"{ledger.id} holds {ledger.held}, limit {ledger.limit}"
        assert 0 <= ledger.leaving <= ledger.active, f"{ledger.id}: {ledger.leaving} of {ledger.active} leaving"
        unsaved = {id for id, block in ledger.lru.items() if block.entry and not block.entry.stored}
        assert not pool.keep_unsaved or set(ledger.unsaved) <= set(ledger.lru), f"{ledger.id}: unsaved but not cached"
        assert not pool.keep_unsaved or unsaved >= set(ledger.unsaved) - _stored(ledger.unsaved.values())
    held = sum(ledger.held for ledger in accounts)
    assert pool.free_blocks + held == pool.total, f"free {pool.free_blocks} + held {held} != total {pool.total}"
    public = accounts.public
    assert public.held == public.active == public.reservation == public.limit, "the public account is its blocks"
    assert accounts.reserved == sum(ledger.reservation for ledger in accounts), "the sum of reservations is off"
    assert accounts.committed == sum(max(ledger.active, ledger.reservation) for ledger in accounts), "committed is off"
    lendable = pool.free_blocks + sum(ledger.lendable for ledger in accounts)
    unmet = sum(max(0, ledger.reservation - ledger.held) for ledger in accounts)
    assert lendable >= unmet, f"reservations are out of reach: {lendable} can be had, {unmet} are unmet"


def _stored(blocks: Iterable[Block]) -> set[int]:
    return {block.id for block in blocks if block.entry and block.entry.stored}


def _check_index(pool: Pool) -> None:
    index = pool.index
    here = 0
    for entry in index:
        assert entry.block is not None or entry.stored, "an entry that is in no place"
        if entry.block is not None:
            here += 1
            assert entry.block.entry is entry, f"entry and {entry.block} disagree"
            assert entry.block.account is not None
            assert entry.block.account.id == entry.root.account, f"{entry.block}: charged to a foreign account"
        parent = entry.parent
        if isinstance(parent, Entry):
            assert entry.lineages <= parent.lineages or index.is_public(entry.root), "used, but not what is before it"
            assert parent.root is entry.root, "a chain changed its scope"
        else:
            assert parent is entry.root, "a chain begins at its root"
    findable = sum(1 for block in pool.known_blocks() if block.entry is not None)
    assert findable == here, f"{findable} findable blocks, {here} entries with a block"
    assert index.published == sum(1 for entry in index if index.is_public(entry.root)), "the published count is off"


def _check_table(pool: Pool, table: BlockTable) -> None:
    chain, public = table.chain, pool.accounts.public
    assert table.capacity == len(table.blocks) * pool.block_size, "the capacity is off"
    alone = sum(pool.block(id).references == 1 for id in table.blocks)
    assert pool.exclusive(table) == alone, f"{pool.exclusive(table)} blocks counted as exclusive, {alone} are"
    parent: Entry | ScopeRoot = pool.index.public_root if chain.public else chain.root
    for index, id in enumerate(table.blocks):
        block = pool.block(id)
        if index == chain.public:
            parent = chain.root
        if index < chain.public:
            assert block.account is public, f"{block} is not a published one"
        else:
            owner = block.account
            begun = table.forked and index == chain.public and owner is public  # to be copied before it is written
            assert owner is table.account or begun, f"{block} of another account in a table of {table.account.id}"
        if index < table.findable and block.account is not public:
            assert block.entry is not None, f"{block} is not findable"
            assert block.entry.parent is parent, f"{block} has another parent"
            parent = block.entry
