"""The pool: equal blocks, taken and given back through block tables, cached for whoever comes back.

Three verbs change a table, as in the paper: ``append`` (room for the next tokens), ``fork`` (share all blocks) and
``free``. Around them: ``adopt`` takes cached prefix blocks into a new table, ``commit`` makes written blocks findable.
A verb that cannot be carried out raises PoolExhausted and has changed nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from pagoda_inference.kv.accounts import Accounts, Ledger
from pagoda_inference.kv.block import Block
from pagoda_inference.kv.block_store import BlockStore, PoolExhausted
from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.entry import Entry, ScopeRoot, resident
from pagoda_inference.kv.lineages import ANYBODY
from pagoda_inference.kv.prefix_index import Chain, Digest, PrefixIndex, chain_digest

MAX_BLOCK_SIZE = 512


__all__ = ["Pool", "PoolExhausted"]


class Pool(BlockStore):
    """``total_blocks`` blocks of ``block_size`` tokens, shared by accounts through block tables."""

    def __init__(
        self,
        total_blocks: int,
        block_size: int = 16,
        *,
        model: str = "",
        secret: bytes | None = None,
        require_accounts: bool = False,
        digest: Digest = chain_digest,
    ) -> None:
        if total_blocks < 1 or not 1 <= block_size <= MAX_BLOCK_SIZE:
            raise ValueError(f"a pool needs at least 1 block, and blocks of 1 to {MAX_BLOCK_SIZE} tokens")
        super().__init__(
            total_blocks,
            Accounts(total_blocks, required=require_accounts),
            PrefixIndex(secret or secrets.token_bytes(32), model, digest),
        )
        self.block_size = block_size
        self.tables: dict[BlockTable, None] = {}
        """All tables that may hold blocks, in the order they were opened."""

    # --- looking ------------------------------------------------------------------------------------------------------

    def blocks_for(self, tokens: int) -> int:
        """How many blocks hold that many tokens."""
        return -(-tokens // self.block_size)

    def chain(self, account: str, scope: str) -> Chain:
        """The chain of a new sequence: what ``match`` and ``commit`` look blocks up with."""
        return Chain(self.index, account, scope, self.block_size)

    def match(self, chain: Chain, tokens: Sequence[int]) -> list[Entry]:
        """The longest run of findable blocks at the start of ``tokens``, leaving at least one token to compute.

        Entries of the run may be in a tier below the pool only: then ``block`` is None.
        """
        blocks = (len(tokens) - 1) // self.block_size
        chain.align(tokens, blocks)
        chain.extend(tokens, blocks)
        found: list[Entry] = []
        find, keys, packed = self.index.find, chain.keys, chain.packed
        parent: Entry | ScopeRoot | None = None
        for index in range(blocks):
            if index == chain.public:
                parent = chain.root
            elif index == 0:
                parent = self.index.public_root
            assert parent is not None
            entry = find(parent, keys[index], packed[index])
            if entry is None:
                break
            found.append(entry)
            parent = entry
        return found

    def needed(self, table: BlockTable, start: int, end: int) -> int:
        """Blocks that ``append(table, start, end)`` would take."""
        shared = len(self._shared_from(table, start)) if table.forked else 0
        return max(0, self.blocks_for(end) - len(table.blocks)) + shared

    def exclusive(self, table: BlockTable) -> int:
        """How many of a table's blocks have no other holder. Counted again only after something can have changed."""
        public = self.accounts.public.sharing_changes
        state = (len(table.blocks), table.account.sharing_changes, public)
        if table.exclusive_as_of != state:
            blocks = self._blocks
            table.exclusive_as_of = state
            table.exclusive = sum([blocks[id].references == 1 for id in table.blocks])
        return table.exclusive

    # --- the verbs ----------------------------------------------------------------------------------------------------

    def open_table(self, ledger: Ledger, chain: Chain, lineage: str = "") -> BlockTable:
        """An empty table that charges ``ledger`` and finds nothing outside the chain's scope and what is published."""
        table = BlockTable(ledger, chain, lineage)
        self.tables[table] = None
        return table

    def adopt(self, table: BlockTable, entries: Sequence[Entry]) -> list[tuple[Entry, int]]:
        """Begin an empty table with a run found by ``match``.

        Making a cached block active counts as taking one; so does an entry that only a tier has, which gets an empty
        block. Returns these entries and blocks: to be loaded before anything reads them.
        """
        waking = sum(1 for entry in entries if entry.block is None or not entry.block.references)
        if waking > self.accounts.room(table.account):
            raise PoolExhausted(f"{waking} blocks, room for {self.accounts.room(table.account)}")
        for entry in entries:
            if entry.block is not None:
                self.hold(entry.block)
        missing = [entry for entry in entries if entry.block is None]
        loads = list(zip(missing, (block.id for block in self._take(table.account, len(missing))), strict=True))
        places = iter(loads)
        table.blocks = [entry.block.id if entry.block is not None else next(places)[1] for entry in entries]
        table.capacity = len(table.blocks) * self.block_size
        found = resident(entries)
        table.found(found, entries[found - 1] if found > table.chain.public else table.chain.root)
        if found > table.chain.public:
            self._use(entries[found - 1], table.lineage)
        return loads

    def share(self, table: BlockTable, ids: Iterable[int]) -> None:
        """Add blocks that other tables of the same request hold already."""
        for id in ids:
            self._hold_again(self._blocks[id])
            table.blocks.append(id)
        table.capacity = len(table.blocks) * self.block_size
        table.forked = True

    def truncate(self, table: BlockTable, blocks: int) -> None:
        """Keep the first ``blocks`` of a table (at least the findable ones) and give the rest back, tail first."""
        while len(table.blocks) > blocks:
            self.unhold(self._blocks[table.blocks.pop()])
        table.capacity = len(table.blocks) * self.block_size
        table.exclusive_as_of = None

    def append(self, table: BlockTable, start: int, end: int) -> list[tuple[int, int]]:
        """Make room to write the tokens at positions ``start .. end - 1``.

        Adds blocks at the end, and replaces blocks in that range that other tables hold too by copies (copy-on-write).
        Returns the (source, destination) blocks that the backend has to copy before it writes.
        """
        if not table.forked and 0 < end - table.capacity <= self.block_size:
            table.blocks.append(self._take_one(table.account).id)
            table.capacity += self.block_size
            return []
        shared = self._shared_from(table, start) if table.forked else ()
        wanted = max(0, self.blocks_for(end) - len(table.blocks))
        taken = self._take(table.account, wanted + len(shared))
        copies = []
        for index in shared:
            old, new = self._blocks[table.blocks[index]], taken.pop()
            copies.append((old.id, new.id))
            table.blocks[index] = new.id
            self.unhold(old)
        table.blocks += [block.id for block in taken]
        table.capacity = len(table.blocks) * self.block_size
        table.forked = False
        table.exclusive_as_of = None
        return copies

    def fork(self, table: BlockTable, tokens: int | None = None) -> BlockTable:
        """A second table over the same blocks, partial ones too: shared until one of them writes.

        ``tokens``: share only the blocks of that many first tokens.
        """
        child = BlockTable(table.account, table.chain.copy(), table.lineage)
        self.tables[child] = None
        full = table.capacity if tokens is None else tokens
        if tokens is not None:
            child.chain.cut(tokens // self.block_size)
        child.blocks = table.blocks[: self.blocks_for(full)]
        child.capacity = len(child.blocks) * self.block_size
        child.forked = table.forked = True
        if full // self.block_size >= table.findable:
            child.found(table.findable, table.last)
        else:
            child.last = table.last
            self._found_within(child, full // self.block_size)
        for id in child.blocks:
            self._hold_again(self._blocks[id])
        return child

    def free(self, table: BlockTable) -> int:
        """Give all blocks back, tail first so that heads outlive tails under LRU. Returns how many nobody holds now.

        Findable blocks stay cached, others are free. Freeing an empty table does nothing.
        """
        released = 0
        blocks = self._blocks
        for id in reversed(table.blocks):
            released += self.unhold(blocks[id])
        table.blocks.clear()
        table.capacity = 0
        table.found(0, table.chain.root)
        self.tables.pop(table, None)
        return released

    def commit(self, table: BlockTable, tokens: Sequence[int], written: int) -> None:
        """The KV of the first ``written`` tokens is in the pool: make the newly full blocks findable.

        Where an equal block is findable already, the table takes that one and gives its own back, so that equal content
        is stored once and the chain goes on from it.
        """
        full = written // self.block_size
        if written < table.commit_at:
            return
        chain, index = table.chain, self.index
        if len(chain.keys) < full:
            chain.extend(tokens, full)
        while table.last is not None and table.findable < full:
            place = table.findable
            key = chain.keys[place]
            own = self._blocks[table.blocks[place]]
            entry = index.find(table.last, key, chain.packed[place])
            if entry is None:
                if index.holds(key):
                    self._drop_orphan(key)
                entry = index.insert(table.last, key, chain.packed[place], chain.root)
            if entry is None:
                table.found(place, None)  # a collision: the chain ends here
                return
            if entry.block is None:
                entry.block, own.entry = own, entry
            elif entry.block is not own:
                if own.references > 1 and not entry.block.references:
                    self._supplant(entry, own)  # a fork holds it too: waking the other would take a block
                else:
                    self._replace(table, place, entry.block)
            if not index.is_public(entry.root):
                self._use(entry, table.lineage)
            table.found(place + 1, entry)

    # --- losing what is cached ----------------------------------------------------------------------------------------

    def purge(self, *ledgers: Ledger) -> None:
        """Drop everything findable of accounts whose requests are gone (deleted tenants), here and in the tiers."""
        ids = {ledger.id for ledger in ledgers}
        self._drop_all([entry for entry in self.index if entry.root.account in ids] if ids else [])
        for ledger in ledgers:
            for block in list(ledger.lru.values()):
                self._lose(block)

    def purge_lineage(self, account: str, lineage: str) -> tuple[int, int]:
        """A conversation was deleted: drop what nobody else uses. (Blocks of the pool, copies in the tiers) gone.

        Blocks that a running request of the conversation holds are not findable any more, and free when it ends.
        """
        if lineage == ANYBODY:
            return 0, 0
        gone, kept = self.index.lineages.purge(account, lineage)
        for entry in kept:
            self.on_lineages(entry)
        blocks = sum(1 for entry in gone if entry.block is not None)
        stored = sum(1 for entry in gone if entry.stored)
        self._drop_all(gone)
        for table in self.tables:
            if table.lineage == lineage and table.account.id == account:
                table.found(table.findable, None)
        return blocks, stored

    def _drop_all(self, entries: Sequence[Entry]) -> None:
        """These contents are not to be found any more, in any tier. Chains of tables that hold them end before them."""
        active: set[int] = set()
        for entry in entries:
            self.index.forget(entry)
            self.on_drop(entry)
            block = entry.block
            if block is None:
                continue
            entry.block = block.entry = None
            if block.references:
                active.add(block.id)
            elif block.account is not None:
                self._release(block)
        for table in self.tables if active else ():
            place = next((place for place, id in enumerate(table.blocks) if id in active), table.findable)
            if place < table.findable:
                table.found(place, None)

    def on_drop(self, entry: Entry) -> None:
        """Replaced where there are tiers: they drop their copies."""

    def on_lineages(self, entry: Entry) -> None:
        """Replaced where there are tiers: they note who uses what they keep."""

    def gone(self, entry: Entry) -> None:
        """The last tier lost its copy of an entry."""
        if entry.block is None and not entry.stored:
            self.index.forget(entry)

    def unpublish(self, entry: Entry) -> None:
        """A published entry is not to be found any more; tables that read its block go on."""
        self.index.forget(entry)
        assert entry.block is not None
        entry.block.entry = None
        entry.block = None

    # --- inside -------------------------------------------------------------------------------------------------------

    def _use(self, entry: Entry, lineage: str) -> None:
        for added in self.index.lineages.add(entry, lineage):
            if added.host is not None or added.disk is not None:
                self.on_lineages(added)

    def _shared_from(self, table: BlockTable, start: int) -> list[int]:
        """Logical blocks at or after token ``start`` that are not this table's alone: others hold or find them."""
        first = start // self.block_size
        blocks = [(index, self._blocks[table.blocks[index]]) for index in range(first, len(table.blocks))]
        return [
            index
            for index, block in blocks
            if block.references > 1 or block.entry is not None or block.account is not table.account
        ]

    def _replace(self, table: BlockTable, index: int, block: Block) -> None:
        """Swap a table's block for an equal findable one. The own block goes first: the room for the other is there."""
        own = self._blocks[table.blocks[index]]
        self.unhold(own)
        self.hold(block)
        table.blocks[index] = block.id
        table.exclusive_as_of = None

    def _supplant(self, entry: Entry, own: Block) -> None:
        """An equal cached block gives way to one that tables hold."""
        cached = entry.block
        assert cached is not None
        cached.entry = None
        entry.block, own.entry = own, entry
        self._release(cached)

    def _drop_orphan(self, key: bytes) -> None:
        orphan = self.index.orphan(key)
        if orphan is not None:
            self._drop_all([orphan])

    def _found_within(self, table: BlockTable, blocks: int) -> None:
        """The first ``blocks`` blocks of a findable chain."""
        chain = table.chain
        if table.last is None:
            table.found(blocks, None)
        elif blocks <= chain.public:
            table.found(blocks, chain.root if blocks == chain.public else None)
        else:
            table.found(blocks, self._blocks[table.blocks[blocks - 1]].entry)
