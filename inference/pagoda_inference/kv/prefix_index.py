"""The prefix index: full blocks found again by what they contain and everything before them.

A block is known by ``h_i = SHA-256(h_{i-1}, tokens of block i)``, every part length-prefixed and tagged; ``h_0`` is
the seed of its scope, an HMAC under a secret that never leaves the engine. The hash only finds candidates: a hit also
requires equal tokens and that the entry's recorded parent is the entry hit just before, so that a collision costs a
miss and never a wrong answer, whatever the hash.

An entry says where the KV of its content lies: in a block of the pool, on the host, on disk, or in several of them.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pagoda_inference.kv.entry import Entry, ScopeRoot
from pagoda_inference.kv.lineages import ANYBODY, Lineages

if TYPE_CHECKING:
    from pagoda_inference.kv.accounts import Ledger

__all__ = ["PUBLIC", "Chain", "Digest", "Entry", "PrefixIndex", "ScopeRoot", "chain_digest", "pack"]

Digest = Callable[[bytes, bytes], bytes]
"""(hash of the parent, packed tokens) -> hash of the block."""

PUBLIC = "public"
"""Account and scope of what the operator has published."""

_HEADER = struct.Struct("<4sI4sI")


def pack(tokens: Sequence[int]) -> bytes:
    """Token ids as consecutive unsigned 32-bit integers: compact to keep and fast to compare."""
    return array("I", tokens).tobytes()


def chain_digest(parent: bytes, packed: bytes) -> bytes:
    """SHA-256 over both parts, each tagged and prefixed with its length in bytes (32 bytes)."""
    return hashlib.sha256(_HEADER.pack(b"prev", len(parent), b"toks", len(packed)) + parent + packed).digest()


class Chain:
    """The chain hashes of one token sequence under one root, computed once and extended as the sequence grows.

    The first ``public`` blocks are published ones; ``root`` is where the private chain begins behind them.
    """

    __slots__ = ("_index", "account", "block_size", "keys", "packed", "public", "root", "scope")

    def __init__(self, index: PrefixIndex, account: str, scope: str, block_size: int) -> None:
        self._index = index
        self.account = account
        self.scope = scope
        self.block_size = block_size
        self.keys: list[bytes] = []
        self.packed: list[bytes] = []
        self.public = 0
        self.root = index.root(account, scope)

    def copy(self) -> Chain:
        """A chain for a sequence that goes its own way from here."""
        other = Chain.__new__(Chain)
        other._index, other.account, other.scope = self._index, self.account, self.scope
        other.block_size, other.public, other.root = self.block_size, self.public, self.root
        other.keys, other.packed = list(self.keys), list(self.packed)
        return other

    def cut(self, blocks: int) -> None:
        """Forget what follows the first ``blocks``: other tokens may come there."""
        del self.keys[blocks:], self.packed[blocks:]
        if blocks < self.public:
            self.public = blocks
            self.root = self._index.root(self.account, self.scope, self.keys[-1] if self.keys else b"", self.packed)

    def align(self, tokens: Sequence[int], blocks: int) -> None:
        """Take the published blocks at the start of ``tokens`` (at most ``blocks``) as they are now.

        Only for a sequence that holds no blocks: the switch of scope stays where it is while it runs.
        """
        index = self._index
        if self.account == PUBLIC or not (index.published or self.public):
            return
        run = index.published_run(tokens, blocks, self.block_size)
        if len(run) != self.public or (run and run[-1].key != self.keys[self.public - 1]):
            self.public = len(run)
            self.keys, self.packed = [entry.key for entry in run], [entry.packed for entry in run]
            self.root = index.root(self.account, self.scope, run[-1].key if run else b"", self.packed)

    def extend(self, tokens: Sequence[int], blocks: int) -> None:
        """Cover the first ``blocks`` full blocks of ``tokens``. Tokens already covered must not have changed."""
        keys, size, digest = self.keys, self.block_size, self._index.digest
        for index in range(len(keys), blocks):
            packed = pack(tokens[index * size : (index + 1) * size])
            self.packed.append(packed)
            keys.append(digest(keys[-1] if index > self.public else self.root.key, packed))


class PrefixIndex:
    """Chain hash -> entry. ``digest`` is replaceable so that tests can force collisions."""

    def __init__(self, secret: bytes, model: str, digest: Digest = chain_digest) -> None:
        self.digest = digest
        self.lineages = Lineages()
        self.published = 0
        """Published entries: while there are none, nobody looks for them."""
        self.awaited: dict[bytes, Ledger] = {}
        """Keys that waiting requests would go on with, and whose: when one appears its ledger takes note, once."""
        self._secret = secret
        self._model = model
        self._roots: WeakValueDictionary[tuple[str, str, bytes], ScopeRoot] = WeakValueDictionary()
        self._entries: dict[bytes, Entry] = {}
        self.public_root = self.root(PUBLIC, PUBLIC)
        """Where published prefixes begin."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def root(self, account: str, scope: str, after: bytes = b"", before: Sequence[bytes] | None = None) -> ScopeRoot:
        """The beginning of all chains of ``scope`` under ``account`` that go on from the published key ``after``.

        before: the published tokens. Where others had the same key, what followed them is not found any more.
        """
        root = self._roots.get((account, scope, after))
        if root is not None and before is not None and root.before is None:
            root.before = tuple(before)
        if root is None or (before is not None and root.before != tuple(before)):
            parts = [self._model.encode(), account.encode(), scope.encode(), after]
            text = b"".join(struct.pack("<I", len(part)) + part for part in parts)
            key = hmac.digest(self._secret, b"pagoda prefix scope" + text, "sha256")
            root = self._roots[account, scope, after] = ScopeRoot(account, scope, after, key)
            root.before = None if before is None else tuple(before)
        return root

    # --- looking ------------------------------------------------------------------------------------------------------

    def holds(self, key: bytes) -> bool:
        """Whether any entry has this key: what extends a match, or a collision."""
        return key in self._entries

    def find(self, parent: Entry | ScopeRoot, key: bytes, packed: bytes) -> Entry | None:
        """The entry with exactly these tokens after exactly this parent, wherever its KV is."""
        entry = self._entries.get(key)
        if entry is not None and entry.parent is parent and entry.packed == packed:
            return entry
        return None

    def published_run(self, tokens: Sequence[int], blocks: int, block_size: int) -> list[Entry]:
        """The published entries at the start of ``tokens``."""
        run: list[Entry] = []
        parent: Entry | ScopeRoot = self.public_root
        for index in range(blocks if self.published else 0):
            packed = pack(tokens[index * block_size : (index + 1) * block_size])
            entry = self.find(parent, self.digest(parent.key, packed), packed)
            if entry is None or entry.block is None:
                break
            run.append(entry)
            parent = entry
        return run

    def is_known(self, entry: Entry) -> bool:
        """Whether the entry can still be found under its key."""
        return self._entries.get(entry.key) is entry

    # --- changing -----------------------------------------------------------------------------------------------------

    def insert(self, parent: Entry | ScopeRoot, key: bytes, packed: bytes, root: ScopeRoot) -> Entry | None:
        """A new entry. None if another one has the key: the content then stays private.

        An entry that lost its parent can never be found again and gives way; the caller sees it in ``orphan`` first.
        """
        if key in self._entries:
            return None
        entry = self._entries[key] = Entry(key, packed, parent, root)
        waiting = self.awaited.pop(key, None)
        if waiting is not None:
            waiting.longer += 1
        if root is self.public_root:
            self.published += 1
        return entry

    def orphan(self, key: bytes) -> Entry | None:
        """The entry under ``key`` if its parent is not there any more."""
        entry = self._entries.get(key)
        if entry is None or isinstance(entry.parent, ScopeRoot) or self.is_known(entry.parent):
            return None
        return entry

    def forget(self, entry: Entry) -> None:
        """Nobody finds it any more. Doing it again does nothing."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            if entry.used_by != ANYBODY:
                self.lineages.forget(entry)
            if entry.root is self.public_root:
                self.published -= 1

    def is_public(self, root: ScopeRoot) -> bool:
        return root is self.public_root
