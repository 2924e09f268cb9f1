"""A block table: one sequence's map from logical to physical blocks (PagedAttention, section 4.2)."""

from __future__ import annotations

import sys

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.prefix_index import Chain, Entry, ScopeRoot

NEVER = sys.maxsize


class BlockTable:
    """``blocks[i]`` holds the KV of tokens ``i * block_size .. (i + 1) * block_size - 1``. Changed by the pool alone.

    capacity: tokens that fit. forked: blocks that are still to be written may be shared with another table. commit_at:
    number of written tokens at which the next block becomes findable. The first ``findable`` blocks are in the prefix
    index, and ``last`` is the entry of the newest of them (or the scope's root): where the chain goes on. ``last`` is
    None once the chain broke, on a hash collision or because its conversation was purged. exclusive,
    exclusive_as_of: see ``Pool.exclusive``.
    """

    __slots__ = (
        "account",
        "blocks",
        "capacity",
        "chain",
        "commit_at",
        "exclusive",
        "exclusive_as_of",
        "findable",
        "forked",
        "last",
        "lineage",
    )

    def __init__(self, account: Ledger, chain: Chain, lineage: str) -> None:
        self.account = account
        self.chain = chain
        self.lineage = lineage
        self.blocks: list[int] = []
        self.capacity = 0
        self.forked = False
        self.exclusive = 0
        self.exclusive_as_of: tuple[int, int, int] | None = None
        self.findable = 0
        self.commit_at = chain.block_size
        self.last: Entry | ScopeRoot | None = chain.root

    def __len__(self) -> int:
        return len(self.blocks)

    def found(self, findable: int, last: Entry | ScopeRoot | None) -> None:
        """The first ``findable`` blocks are findable, up to ``last``; None: no more will be."""
        self.findable = findable
        self.last = last
        self.commit_at = NEVER if last is None else (findable + 1) * self.chain.block_size
