"""The prefix index: full blocks found again by what they contain and everything before them.

A block is known by ``h_i = SHA-256(h_{i-1}, tokens of block i)``, every part length-prefixed and tagged; ``h_0`` is
the seed of its scope, an HMAC under a secret that never leaves the engine. The hash only finds candidates: a hit also
requires equal tokens and that the entry's recorded parent is the entry hit just before, so that a collision costs a
miss and never a wrong answer, whatever the hash.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from array import array
from collections.abc import Callable, Sequence

from pagoda_inference.kv.block import Block

Digest = Callable[[bytes, bytes], bytes]
"""(hash of the parent, packed tokens) -> hash of the block."""


def pack(tokens: Sequence[int]) -> bytes:
    """Token ids as consecutive unsigned 32-bit integers: compact to keep and fast to compare."""
    return array("I", tokens).tobytes()


def chain_digest(parent: bytes, packed: bytes) -> bytes:
    """SHA-256 over both parts, each tagged and prefixed with its length in bytes (32 bytes)."""
    header = struct.pack("<4sI4sI", b"prev", len(parent), b"toks", len(packed))
    return hashlib.sha256(header + parent + packed).digest()


class ScopeRoot:
    """Where the chains of one scope begin. Two scopes never share a root, hence never a chain."""

    __slots__ = ("account", "key", "scope")

    def __init__(self, account: str, scope: str, key: bytes) -> None:
        self.account = account
        self.scope = scope
        self.key = key


class Entry:
    """One findable block: its chain hash, its tokens (packed), the entry or root before it."""

    __slots__ = ("block", "key", "packed", "parent")

    def __init__(self, key: bytes, packed: bytes, parent: Entry | ScopeRoot, block: Block) -> None:
        self.key = key
        self.packed = packed
        self.parent = parent
        self.block = block


class Chain:
    """The chain hashes of one token sequence under one root, computed once and extended as the sequence grows."""

    __slots__ = ("_block_size", "_digest", "keys", "packed", "root")

    def __init__(self, root: ScopeRoot, block_size: int, digest: Digest) -> None:
        self.root = root
        self.keys: list[bytes] = []
        self.packed: list[bytes] = []
        self._block_size = block_size
        self._digest = digest

    def copy(self) -> Chain:
        """A chain for a sequence that goes its own way from here."""
        other = Chain(self.root, self._block_size, self._digest)
        other.keys, other.packed = list(self.keys), list(self.packed)
        return other

    def extend(self, tokens: Sequence[int], blocks: int) -> None:
        """Cover the first ``blocks`` full blocks of ``tokens``. Tokens already covered must not have changed."""
        size = self._block_size
        for index in range(len(self.keys), blocks):
            packed = pack(tokens[index * size : (index + 1) * size])
            self.packed.append(packed)
            self.keys.append(self._digest(self.keys[-1] if self.keys else self.root.key, packed))


class PrefixIndex:
    """Chain hash -> findable block. ``digest`` is replaceable so that tests can force collisions."""

    def __init__(self, secret: bytes, model: str, digest: Digest = chain_digest) -> None:
        self._secret = secret
        self._model = model
        self._digest = digest
        self._roots: dict[tuple[str, str], ScopeRoot] = {}
        self._entries: dict[bytes, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def root(self, account: str, scope: str) -> ScopeRoot:
        """The beginning of all chains of ``scope`` under ``account``."""
        root = self._roots.get((account, scope))
        if root is None:
            parts = [part.encode() for part in (self._model, account, scope)]
            text = b"".join(struct.pack("<I", len(part)) + part for part in parts)
            key = hmac.digest(self._secret, b"pagoda prefix scope" + text, "sha256")
            root = self._roots[account, scope] = ScopeRoot(account, scope, key)
        return root

    def forget_account(self, account: str) -> None:
        """Drop the roots of a deleted account; its entries are dropped with their blocks."""
        self._roots = {names: root for names, root in self._roots.items() if names[0] != account}

    def chain(self, account: str, scope: str, block_size: int) -> Chain:
        """An empty chain under the scope's root."""
        return Chain(self.root(account, scope), block_size, self._digest)

    def find(self, parent: Entry | ScopeRoot, key: bytes, packed: bytes) -> Entry | None:
        """The findable block with exactly these tokens after exactly this parent."""
        entry = self._entries.get(key)
        if entry is not None and entry.parent is parent and entry.packed == packed:
            return entry
        return None

    def insert(self, parent: Entry | ScopeRoot, key: bytes, packed: bytes, block: Block) -> Entry | None:
        """Make a written block findable. None if another entry has the key: the block then stays private."""
        if key in self._entries:
            return None
        entry = self._entries[key] = Entry(key, packed, parent, block)
        block.entry = entry
        return entry

    def drop(self, block: Block) -> None:
        """The block's content is about to be lost: nobody finds it any more."""
        entry = block.entry
        if entry is not None:
            del self._entries[entry.key]
            block.entry = None
