"""What the prefix index holds: the roots of scopes, and the entries that follow them."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda_inference.kv.block import Block


class ScopeRoot:
    """Where the chains of one scope begin. Two scopes never share a root, hence never a chain.

    after: key of the published entry that these chains go on from; b"" for those from the first token.
    """

    __slots__ = ("__weakref__", "account", "after", "before", "key", "scope")

    def __init__(self, account: str, scope: str, after: bytes, key: bytes) -> None:
        self.account = account
        self.scope = scope
        self.after = after
        self.key = key
        self.before: tuple[bytes, ...] | None = None
        """The published tokens (packed, by block) before these chains; None where only ``after`` is known so far."""


class Entry:
    """One findable content: its chain hash, its tokens (packed), the entry or root before it, and where its KV is.

    host, disk: handles of the tiers. An entry that is in no place is forgotten.
    """

    __slots__ = ("block", "disk", "host", "key", "packed", "parent", "root", "used_by")

    def __init__(self, key: bytes, packed: bytes, parent: Entry | ScopeRoot, root: ScopeRoot) -> None:
        self.key = key
        self.packed = packed
        self.parent = parent
        self.root = root
        self.block: Block | None = None
        self.host: object | None = None
        self.disk: object | None = None
        self.used_by: str | set[str] | None = None
        """See ``lineages``: one lineage, or a set of several."""

    @property
    def stored(self) -> bool:
        """Whether a tier below the pool has it."""
        return self.host is not None or self.disk is not None

    @property
    def placed(self) -> bool:
        """Whether it is anywhere at all."""
        return self.block is not None or self.stored

    @property
    def lineages(self) -> set[str]:
        """The conversations that used it; '' stands for use without one."""
        if isinstance(self.used_by, set):
            return self.used_by
        return set() if self.used_by is None else {self.used_by}


def resident(run: Sequence[Entry]) -> int:
    """How many entries from the start of a run are in the pool."""
    return next((place for place, entry in enumerate(run) if entry.block is None), len(run))
