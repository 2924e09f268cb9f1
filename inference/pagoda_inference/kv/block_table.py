"""A block table: one sequence's map from logical to physical blocks (PagedAttention, section 4.2)."""

from __future__ import annotations

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.prefix_index import Chain, Entry, ScopeRoot


class BlockTable:
    """``blocks[i]`` holds the KV of tokens ``i * block_size .. (i + 1) * block_size - 1``. Changed by the pool alone.

    The first ``findable`` blocks are in the prefix index, and ``last`` is the entry of the newest of them (or the
    scope's root): where the chain goes on. ``last`` is None once the chain broke on a hash collision.
    """

    __slots__ = ("account", "blocks", "chain", "findable", "last")

    def __init__(self, account: Ledger, chain: Chain) -> None:
        self.account = account
        self.chain = chain
        self.blocks: list[int] = []
        self.findable = 0
        self.last: Entry | ScopeRoot | None = chain.root

    def __len__(self) -> int:
        return len(self.blocks)
