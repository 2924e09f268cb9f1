"""The pool: equal blocks, taken and given back through block tables, cached for whoever comes back.

Three verbs change a table, as in the paper: ``append`` (room for the next tokens), ``fork`` (share all blocks) and
``free``. Around them: ``adopt`` takes cached prefix blocks into a new table, ``commit`` makes written blocks findable.
A verb that cannot be carried out raises PoolExhausted and has changed nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from pagoda_inference.kv.accounts import Accounts, Ledger
from pagoda_inference.kv.block import Block
from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.prefix_index import Chain, Digest, Entry, PrefixIndex, ScopeRoot, chain_digest


class PoolExhausted(Exception):
    """The account cannot have that many blocks now. Nothing was changed."""


class Pool:
    """``total_blocks`` blocks of ``block_size`` tokens, shared by accounts.

    Blocks are bookkeeping objects made on first use; the KV itself lives in the backend under the same ids.
    """

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
        if total_blocks < 1 or not 1 <= block_size <= 256:
            raise ValueError("a pool needs at least 1 block, and blocks of 1 to 256 tokens")
        self.total = total_blocks
        self.block_size = block_size
        self.accounts = Accounts(total_blocks, required=require_accounts)
        self.index = PrefixIndex(secret or secrets.token_bytes(32), model, digest)
        self._blocks: list[Block] = []
        self._free: list[Block] = []

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def free_blocks(self) -> int:
        return self.total - len(self._blocks) + len(self._free)

    def block(self, id: int) -> Block:
        return self._blocks[id]

    def known_blocks(self) -> list[Block]:
        """All blocks used at least once; the others are free."""
        return list(self._blocks)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks hold that many tokens."""
        return -(-tokens // self.block_size)

    def chain(self, account: str, scope: str) -> Chain:
        """The chain of a new sequence: what ``match`` and ``commit`` look blocks up with."""
        return self.index.chain(account, scope, self.block_size)

    def match(self, chain: Chain, tokens: Sequence[int]) -> list[Entry]:
        """The longest run of findable blocks at the start of ``tokens``, leaving at least one token to compute."""
        blocks = (len(tokens) - 1) // self.block_size
        chain.extend(tokens, blocks)
        found: list[Entry] = []
        parent: Entry | ScopeRoot = chain.root
        for index in range(blocks):
            entry = self.index.find(parent, chain.keys[index], chain.packed[index])
            if entry is None:
                break
            found.append(entry)
            parent = entry
        return found

    def needed(self, table: BlockTable, start: int, end: int) -> int:
        """Blocks that ``append(table, start, end)`` would take."""
        return max(0, self.blocks_for(end) - len(table)) + len(self._shared_from(table, start))

    # --- the verbs ----------------------------------------------------------------------------------------------------

    def open_table(self, ledger: Ledger, chain: Chain) -> BlockTable:
        """An empty table that charges ``ledger`` and finds nothing outside the chain's scope."""
        return BlockTable(ledger, chain)

    def adopt(self, table: BlockTable, entries: Sequence[Entry]) -> None:
        """Begin an empty table with blocks found by ``match``. Making a cached block active counts as taking one."""
        waking = sum(1 for entry in entries if entry.block.references == 0)
        if waking > self.accounts.room(table.account):
            raise PoolExhausted(f"{waking} cached blocks, room for {self.accounts.room(table.account)}")
        for entry in entries:
            self._hold(entry.block)
            table.blocks.append(entry.block.id)
        table.findable = len(table.blocks)
        if entries:
            table.last = entries[-1]

    def append(self, table: BlockTable, start: int, end: int) -> list[tuple[int, int]]:
        """Make room to write the tokens at positions ``start .. end - 1``.

        Adds blocks at the end, and replaces blocks in that range that other tables hold too by copies (copy-on-write).
        Returns the (source, destination) blocks that the backend has to copy before it writes.
        """
        shared = self._shared_from(table, start)
        wanted = max(0, self.blocks_for(end) - len(table))
        taken = self._take(table.account, wanted + len(shared))
        copies = []
        for index in shared:
            old, new = self._blocks[table.blocks[index]], taken.pop()
            copies.append((old.id, new.id))
            table.blocks[index] = new.id
            self._unhold(old)
        table.blocks.extend(block.id for block in taken)
        return copies

    def fork(self, table: BlockTable) -> BlockTable:
        """A second table over the same blocks, partial ones too: shared until one of them writes."""
        child = BlockTable(table.account, table.chain.copy())
        child.blocks = list(table.blocks)
        child.findable, child.last = table.findable, table.last
        for id in child.blocks:
            self._hold(self._blocks[id])
        return child

    def free(self, table: BlockTable) -> int:
        """Give all blocks back, tail first so that heads outlive tails under LRU. Returns how many nobody holds now.

        Findable blocks stay cached, others are free. Freeing an empty table does nothing.
        """
        released = 0
        for id in reversed(table.blocks):
            released += self._unhold(self._blocks[id])
        table.blocks.clear()
        table.findable, table.last = 0, table.chain.root
        return released

    def commit(self, table: BlockTable, tokens: Sequence[int], written: int) -> None:
        """The KV of the first ``written`` tokens is in the pool: make the newly full blocks findable.

        Where an equal block is findable already, the table takes that one and gives its own back, so that equal content
        is stored once and the chain goes on from it.
        """
        full = written // self.block_size
        if table.findable >= full:
            return
        chain = table.chain
        chain.extend(tokens, full)
        while table.last is not None and table.findable < full:
            index = table.findable
            key, packed = chain.keys[index], chain.packed[index]
            own = self._blocks[table.blocks[index]]
            entry = self.index.find(table.last, key, packed)
            if entry is None:
                entry = self.index.insert(table.last, key, packed, own)
            elif entry.block is not own:
                self._replace(table, index, entry.block)
            table.last = entry
            if entry is not None:
                table.findable += 1

    # --- accounts -----------------------------------------------------------------------------------------------------

    def evict_above_limit(self, ledger: Ledger) -> None:
        """A limit was lowered: drop the account's own cached blocks until it is kept or none is left."""
        while ledger.held > ledger.limit and ledger.lru:
            self._evict(ledger, "limit_lowered", ledger)

    def purge(self, ledger: Ledger) -> None:
        """Drop all cached blocks of an account (deleted tenant)."""
        while ledger.lru:
            _, block = ledger.lru.popitem(last=False)
            self._release(block)
        self.index.forget_account(ledger.id)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _shared_from(self, table: BlockTable, start: int) -> list[int]:
        """Logical blocks at or after token ``start`` that other tables hold too."""
        first = start // self.block_size
        return [index for index in range(first, len(table)) if self._blocks[table.blocks[index]].references > 1]

    def _take(self, ledger: Ledger, count: int) -> list[Block]:
        if count > self.accounts.room(ledger):
            raise PoolExhausted(f"{count} blocks wanted, room for {self.accounts.room(ledger)}")
        taken = []
        for _ in range(count):
            if ledger.held >= ledger.limit:
                self._evict(ledger, "own_lru", ledger)
            elif not self._free and len(self._blocks) == self.total:
                self._evict_for(ledger)
            if self._free:
                block = self._free.pop()
            else:
                block = Block(len(self._blocks))
                self._blocks.append(block)
            block.account = ledger
            block.references = 1
            self.accounts.activated(ledger)
            taken.append(block)
        return taken

    def _evict_for(self, taker: Ledger) -> None:
        """Free one block for ``taker``: from the account of greatest excess that has cached blocks above its
        reservation.

        Where nobody has, the taker's own oldest cached block goes: it keeps what it holds.
        """
        lenders = [ledger for ledger in self.accounts if ledger.lendable]
        victim = max(lenders, key=lambda ledger: ledger.excess) if lenders else taker
        below = taker.held < taker.reservation
        cause = "own_lru" if victim is taker else "reclaimed" if below else "over_share"
        self._evict(victim, cause, taker)

    def _evict(self, victim: Ledger, cause: str, taker: Ledger) -> None:
        _, block = victim.lru.popitem(last=False)
        victim.evictions[cause] = victim.evictions.get(cause, 0) + 1
        victim.evicted_by[taker.id] = victim.evicted_by.get(taker.id, 0) + 1
        self._release(block)

    def _release(self, block: Block) -> None:
        self.index.drop(block)
        block.account = None
        self._free.append(block)

    def _hold(self, block: Block) -> None:
        block.references += 1
        if block.references == 1:
            assert block.account is not None
            del block.account.lru[block.id]
            self.accounts.activated(block.account)

    def _unhold(self, block: Block) -> int:
        """One table less holds the block. 1 if it was the last."""
        assert block.references > 0, f"{block} is held by no table"
        assert block.account is not None
        block.references -= 1
        if block.references:
            return 0
        self.accounts.deactivated(block.account)
        if block.entry is None:
            self._release(block)
        else:
            block.account.lru[block.id] = block
        return 1

    def _replace(self, table: BlockTable, index: int, block: Block) -> None:
        """Swap a table's block for an equal findable one. The own block goes first: the room for the other is there."""
        own = self._blocks[table.blocks[index]]
        self._unhold(own)
        self._hold(block)
        table.blocks[index] = block.id
