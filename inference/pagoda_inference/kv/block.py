"""A block: the KV of ``block_size`` consecutive tokens of one scope, and its place in the prefix index."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagoda_inference.kv.accounts import Ledger
    from pagoda_inference.kv.entry import Entry


class Block:
    """Bookkeeping of one physical block. Its state follows from three fields:

    free: ``account`` is None. active: ``references`` > 0 tables hold it. cached: none holds it and ``entry`` is set.
    """

    __slots__ = ("account", "entry", "id", "references")

    def __init__(self, id: int) -> None:
        self.id = id
        self.references = 0
        self.account: Ledger | None = None
        self.entry: Entry | None = None

    def __repr__(self) -> str:
        account = self.account.id if self.account else None
        return f"Block({self.id}, references={self.references}, account={account}, findable={self.entry is not None})"
