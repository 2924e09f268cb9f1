"""A model beside the pool: what every slot of every block contains, what was made findable, and what must follow.

``PoolModel`` drives the pool's own verbs, without a scheduler, and checks each against the model: tables read back
their tokens, ``match`` finds exactly the longest run, evictions hit whom the rules say, and a verb that fails changes
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.block import Block
from pagoda_inference.kv.block_table import BlockTable
from pagoda_inference.kv.entry import Entry
from pagoda_inference.kv.invariants import check
from pagoda_inference.kv.pool import Pool, PoolExhausted
from pagoda_inference.kv.prefix_index import PUBLIC, Digest, chain_digest
from tests.kv.pool_expectations import check_victims, orphans, reachable, snapshot

Content = tuple[str, str, int, tuple[int, ...]]
"""Account, scope, published blocks before it, and all tokens up to the block's end."""


def two_bit_digest(parent: bytes, packed: bytes) -> bytes:
    """A hash that collides all the time: hits must still be right."""
    return bytes([chain_digest(parent, packed)[0] & 3])


class Held:
    """One table and what its owner knows: all tokens, and how many of them are written."""

    def __init__(self, table: BlockTable, tokens: Sequence[int], written: int) -> None:
        self.table = table
        self.tokens = list(tokens)
        self.written = written
        self.committed = 0


class PoolModel:
    """A pool, its memory and the tables that tests hold. ``fired`` counts what happened."""

    def __init__(
        self, blocks: int, size: int, digest: Digest = chain_digest, fired: Counter[str] | None = None
    ) -> None:
        self.size = size
        self.collides = digest is not chain_digest
        self.pool = Pool(blocks, size, secret=b"test", digest=digest)
        self.memory: dict[tuple[int, int], tuple[int, int]] = {}
        self.held: list[Held] = []
        self.published: list[Held] = []
        self.copies: list[list[Block]] = []
        self.contents: dict[int, Content] = {}
        """What a findable block holds, by block id."""
        self.fired = Counter() if fired is None else fired

    # --- the verbs ----------------------------------------------------------------------------------------------------

    def open(self, account: str, scope: str, lineage: str, tokens: Sequence[int], most: int | None = None) -> None:
        """A new table that takes what is cached (at most ``most`` blocks of it)."""
        ledger = self.pool.accounts.find(account)
        if ledger is None:
            self.fired["unknown account"] += 1
            return
        chain = self.pool.chain(account, scope)
        run = self.pool.match(chain, tokens)
        self._check_match(run, account, scope, tokens)
        run = run[: max(chain.public, most)] if most is not None else run
        table = self.pool.open_table(ledger, chain, lineage)
        if self._attempt(lambda: self.pool.adopt(table, run), ledger) is None:
            self.pool.free(table)
            return
        self.fired["hit"] += bool(run)
        self.fired["public hit"] += any(entry.root.account == PUBLIC for entry in run)
        self.fired["private after public"] += 0 < chain.public < len(run)
        self.held.append(Held(table, tokens, len(run) * self.size))

    def append(self, held: Held, count: int) -> None:
        """Room for the next tokens, copies where blocks are shared, and the tokens written."""
        end = held.written + count
        while len(held.tokens) < end:  # it decodes
            held.tokens.append(sum(held.tokens) % 4)
        needed = self.pool.needed(held.table, held.written, end)
        free = self.pool.free_blocks
        copies = self._attempt(
            lambda: self.pool.append(held.table, held.written, end), held.table.account, lambda: needed
        )
        if copies is None:
            return
        assert self.pool.free_blocks >= free - needed, "more blocks were taken than announced"
        for source, destination in copies:
            self.fired["copy on write"] += 1
            for offset in range(self.size):
                self.memory.pop((destination, offset), None)
                if (source, offset) in self.memory:
                    self.memory[destination, offset] = self.memory[source, offset]
        for position in range(held.written, end):
            block = self.pool.block(held.table.blocks[position // self.size])
            assert block.references == 1, "a shared block is written"
            assert block.entry is None, "a findable block is written"
            self.memory[block.id, position % self.size] = (held.tokens[position], position)
        held.written = end

    def commit(self, held: Held, written: int) -> None:
        """What is written becomes findable, or is replaced by an equal block that is."""
        before, blocks = held.table.findable, list(held.table.blocks)
        room = self.pool.accounts.room(held.table.account)
        before_orphans = orphans(self.pool)
        self.pool.commit(held.table, held.tokens, written)
        assert self.pool.accounts.room(held.table.account) >= room, "a commit took blocks"
        table, chain = held.table, held.table.chain
        for place in range(before, table.findable):
            block = self.pool.block(table.blocks[place])
            assert block.entry is not None
            assert table.blocks[place] == blocks[place] or self.contents[block.id] == self._content(held, place)
            self.contents[block.id] = self._content(held, place)
            self.fired["dedupe"] += table.blocks[place] != blocks[place]
        if table.last is None and table.findable < written // self.size:
            self.fired["collision"] += self.collides
        self.fired["orphan replaced"] += len(before_orphans - orphans(self.pool))
        assert chain.public <= table.findable or table.findable == before

    def fork(self, held: Held, tokens: int | None = None) -> None:
        """Another table over the same blocks, of all or of the first written tokens."""
        active = sum(ledger.active for ledger in self.pool.accounts)
        kept = held.written if tokens is None else min(tokens, held.written)
        table = self.pool.fork(held.table, None if tokens is None else kept)
        assert sum(ledger.active for ledger in self.pool.accounts) == active, "a fork took blocks"
        self.held.append(Held(table, held.tokens if tokens is None else held.tokens[:kept], kept))

    def share(self, held: Held, blocks: int) -> None:
        """A second table of the same request, put together from blocks of the first."""
        table = self.pool.open_table(held.table.account, held.table.chain.copy(), held.table.lineage)
        full = min(blocks, held.written // self.size)
        if full < held.table.chain.public:
            self.pool.free(table)
            return
        self.pool.adopt(table, [])
        table.found(held.table.chain.public, None)
        self.pool.share(table, held.table.blocks[:full])
        self.held.append(Held(table, held.tokens, full * self.size))

    def truncate(self, held: Held, blocks: int) -> None:
        """Give the tail back."""
        blocks = max(blocks, held.table.findable)
        self.pool.truncate(held.table, blocks)
        held.written = min(held.written, blocks * self.size)

    def free(self, held: Held) -> None:
        """Give everything back; again does nothing."""
        ledger, active = held.table.account, held.table.account.active
        released = self.pool.free(held.table)
        public = self.pool.accounts.public
        assert ledger.active <= active
        assert released >= active - ledger.active or ledger is public
        before = snapshot(self.pool)
        assert self.pool.free(held.table) == 0
        assert snapshot(self.pool) == before, "freeing twice changed something"
        if held in self.held:
            self.held.remove(held)

    # --- copies -------------------------------------------------------------------------------------------------------

    def copy_cached(self, account: str, count: int) -> None:
        """A demotion holds the oldest cached blocks of an account."""
        ledger = self.pool.accounts.find(account)
        if ledger is not None and self.pool.accounts.room(ledger) >= count:
            blocks = list(ledger.lru.values())[:count]
            for block in blocks:
                self.pool.hold(block)
            self.copies.append(blocks)

    def copy_table(self, held: Held) -> None:
        """A swap holds the blocks of a table, which is freed at once."""
        blocks = self.pool.hold_all(held.table.blocks)
        self.copies.append(blocks[::-1])  # tail first, like what is cached
        self.free(held)

    def end_copy(self, blocks: list[Block]) -> None:
        """What was copied comes back as old as it was."""
        self.copies.remove(blocks)
        for block in reversed(blocks):
            self.fired["copy outlived its account"] += block.account is not None and block.account.retired
            self.pool.unhold(block, first=True)

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The pool's own invariants, and that every table reads back exactly its tokens."""
        check(self.pool, [held.table for held in [*self.held, *self.published]], self.copies)
        for held in [*self.held, *self.published]:
            blocks = held.table.blocks
            for position in range(held.written):
                slot = blocks[position // self.size], position % self.size
                assert self.memory.get(slot) == (held.tokens[position], position), f"a foreign token in {slot}"
        for entry in self.pool.index:
            assert entry.block is not None
            account, _, _, tokens = self.contents[entry.block.id]
            assert entry.root.account == account
            first = len(tokens) - self.size
            for offset in range(self.size):
                assert self.memory[entry.block.id, offset] == (tokens[first + offset], first + offset)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _attempt(self, verb: Callable[[], Any], taker: Ledger, needed: Callable[[], int] | None = None) -> Any:
        """Carry a taking verb out, and compare what it evicted with the rules; None where the pool was exhausted."""
        before = snapshot(self.pool)
        cached = {ledger: list(ledger.lru) for ledger in self.pool.accounts}
        room, count = self.pool.accounts.room(taker), needed() if needed else None
        evicted = Counter({ledger: sum(ledger.evictions.values()) for ledger in cached})
        try:
            result = verb()
        except PoolExhausted:
            self.fired["exhausted"] += 1
            assert count is None or count > room, "refused what there is room for"
            assert snapshot(self.pool) == before, "a refused verb changed something"
            return None
        assert count is None or count <= room, "given what there is no room for"
        for ledger, ids in cached.items():
            lost = sum(ledger.evictions.values()) - evicted[ledger]
            assert all(id not in ledger.lru for id in ids[:lost]), "not the least recently used was evicted"
            for cause in ("own_lru", "reclaimed", "over_share"):
                self.fired[cause] = max(self.fired[cause], ledger.evictions.get(cause, 0))
        check_victims({ledger: sum(ledger.evictions.values()) - evicted[ledger] for ledger in cached}, taker)
        return result

    def _check_match(self, run: list[Entry], account: str, scope: str, tokens: Sequence[int]) -> None:
        """The run is the longest one of findable blocks of this scope with these very tokens."""
        blocks = [entry.block for entry in reachable(self.pool)]
        findable = {self.contents[block.id] for block in blocks if block is not None}
        most = (len(tokens) - 1) // self.size
        public = 0
        while public < most and (PUBLIC, PUBLIC, 0, tuple(tokens[: (public + 1) * self.size])) in findable:
            public += 1
        length = public
        while length < most and (account, scope, public, tuple(tokens[: (length + 1) * self.size])) in findable:
            length += 1
        if self.collides:
            assert len(run) <= length, "a hit that is none"
        else:
            assert len(run) == length, f"{len(run)} blocks found of {length}"
        for place, entry in enumerate(run):
            assert entry.block is not None
            owner = (PUBLIC, PUBLIC, 0) if entry.root.account == PUBLIC else (account, scope, public)
            assert self.contents[entry.block.id] == (*owner, tuple(tokens[: (place + 1) * self.size])), "a wrong hit"

    def _content(self, held: Held, place: int) -> Content:
        chain = held.table.chain
        return chain.account, chain.scope, chain.public, tuple(held.tokens[: (place + 1) * self.size])
