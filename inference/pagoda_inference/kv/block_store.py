"""The blocks of a pool and who holds them: active while anybody does, cached while they can be found, else free."""

from __future__ import annotations

from collections.abc import Iterable

from pagoda_inference.kv.accounts import Accounts, Ledger
from pagoda_inference.kv.block import Block
from pagoda_inference.kv.eviction import Eviction
from pagoda_inference.kv.prefix_index import PrefixIndex


class PoolExhausted(Exception):
    """The account cannot have that many blocks now. Nothing was changed."""


class BlockStore:
    """``total_blocks`` blocks, made on first use and charged to ``accounts``; ``index`` finds what they contain.

    The KV itself lives in the backend under the same ids.
    """

    def __init__(self, total_blocks: int, accounts: Accounts, index: PrefixIndex) -> None:
        self.total = total_blocks
        self.accounts = accounts
        self.index = index
        self.keep_unsaved = False
        """Whether ledgers keep track of cached blocks that no tier below has."""
        self._blocks: list[Block] = []
        self._free: list[Block] = []
        self._eviction = Eviction(accounts, self._lose)

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def free_blocks(self) -> int:
        return self.total - len(self._blocks) + len(self._free)

    def block(self, id: int) -> Block:
        return self._blocks[id]

    def known_blocks(self) -> list[Block]:
        """All blocks used at least once; the others are free."""
        return list(self._blocks)

    def quotas_changed(self) -> None:
        """Reservations, limits or weights are others now."""
        self._eviction.renew()

    def evict_above_limit(self, ledger: Ledger) -> None:
        """A limit was lowered: drop the account's own cached blocks until it is kept or none is left."""
        while ledger.held > ledger.limit and ledger.lru:
            self._eviction.evict(ledger, "limit_lowered", ledger)

    # --- holding ------------------------------------------------------------------------------------------------------

    def hold(self, block: Block) -> None:
        """One table (or copy) more holds the block."""
        if block.references:
            self._hold_again(block)
            return
        block.references = 1
        ledger = block.account
        assert ledger is not None
        del ledger.lru[block.id]
        if self.keep_unsaved:
            ledger.unsaved.pop(block.id, None)
        self.accounts.activated(ledger)

    def _hold_again(self, block: Block) -> None:
        """An active block is held once more."""
        assert block.references > 0, f"{block} is nobody's: it cannot be held once more"
        block.references += 1
        if block.references == 2:
            assert block.account is not None
            block.account.shared += 1
            block.account.sharing_changes += 1

    def unhold(self, block: Block, *, first: bool = False) -> int:
        """One table less holds the block. 1 if it was the last.

        ``first``: it comes back from being copied down and becomes the least recently used, as it was.
        """
        assert block.references > 0, f"{block} is held by no table"
        block.references -= 1
        ledger = block.account
        assert ledger is not None
        if block.references:
            if block.references == 1:
                ledger.shared -= 1
                ledger.sharing_changes += 1
            return 0
        self.accounts.deactivated(ledger)
        entry = block.entry
        if entry is None or ledger is self.accounts.public or ledger.retired:
            self._lose(block)
            return 1
        ledger.lru[block.id] = block
        if len(ledger.lru) == 1:
            self._eviction.rose(ledger)
        if first:
            ledger.lru.move_to_end(block.id, last=False)
        elif self.keep_unsaved and not entry.stored:
            ledger.unsaved[block.id] = block
        return 1

    def hold_all(self, ids: Iterable[int]) -> list[Block]:
        """Hold blocks that are active already, for a copy."""
        held = [self._blocks[id] for id in ids]
        for block in held:
            self._hold_again(block)
        return held

    # --- taking and losing --------------------------------------------------------------------------------------------

    def _take_one(self, ledger: Ledger) -> Block:
        """One block, as ``_take`` gives several: what nearly every step of an answer needs."""
        accounts, free = self.accounts, self._free
        active, cached, reservation = ledger.active, len(ledger.lru), ledger.reservation
        if active >= ledger.limit or (active >= reservation and accounts.committed >= self.total):
            raise PoolExhausted(f"1 block wanted, room for {accounts.room(ledger)}")
        if active + cached >= ledger.limit:
            self._eviction.evict(ledger, "own_lru", ledger)
        if not free and len(self._blocks) == self.total:
            self._eviction.make_free(ledger, 1, 0)
        if free:
            block = free.pop()
        else:
            block = Block(len(self._blocks))
            self._blocks.append(block)
        block.account = ledger
        block.references = 1
        ledger.active = active + 1
        if active >= reservation:
            accounts.committed += 1
        if ledger.lru:
            self._eviction.rose(ledger)
        return block

    def _take(self, ledger: Ledger, count: int) -> list[Block]:
        """Blocks for a table of the ledger, each held once. Raises PoolExhausted, having changed nothing."""
        if not count:
            return []
        accounts, free = self.accounts, self._free
        if count > accounts.room(ledger):
            raise PoolExhausted(f"{count} blocks wanted, room for {accounts.room(ledger)}")
        held = ledger.active + len(ledger.lru)
        for _ in range(held + count - ledger.limit):
            self._eviction.evict(ledger, "own_lru", ledger)
        missing = count - len(free) - self.total + len(self._blocks)
        if missing > 0:
            self._eviction.make_free(ledger, missing, count - missing)
        taken = [free.pop() for _ in range(min(count, len(free)))]
        while len(taken) < count:
            block = Block(len(self._blocks))
            self._blocks.append(block)
            taken.append(block)
        for block in taken:
            block.account = ledger
            block.references = 1
        accounts.activated(ledger, count)
        if ledger.lru:
            self._eviction.rose(ledger)
        return taken

    def _lose(self, block: Block) -> None:
        """A block that nobody holds becomes free. What a tier below has stays findable."""
        entry = block.entry
        if entry is not None:
            entry.block = block.entry = None
            if not entry.stored:
                self.index.forget(entry)
        self._release(block)

    def _release(self, block: Block) -> None:
        ledger = block.account
        assert ledger is not None
        ledger.lru.pop(block.id, None)
        if ledger.unsaved:
            ledger.unsaved.pop(block.id, None)
        block.account = None
        self._free.append(block)
        if ledger is self.accounts.public:
            self.accounts.resize_public(ledger.reservation - 1)
        elif ledger.retired:
            self.accounts.released(ledger)
