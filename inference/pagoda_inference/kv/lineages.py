"""Lineages: which conversations used which entries, so that a deleted one takes its blocks along.

Whoever uses an entry uses everything before it: the lineages of an entry are a subset of its parent's. So only the
last entries of a lineage (its tips) need to be kept, and the rest is found by walking up.
"""

from __future__ import annotations

from pagoda_inference.kv.entry import Entry, ScopeRoot

ANYBODY = ""
"""Use without a lineage: it keeps an entry from being purged with the others."""


class Lineages:
    """(account, lineage) -> the last entries that it used."""

    def __init__(self) -> None:
        self._tips: dict[tuple[str, str], dict[Entry, None]] = {}
        """In the order they came."""

    def add(self, entry: Entry, lineage: str) -> list[Entry]:
        """``lineage`` uses the entry and all before it. Returns those for which it is new."""
        added: list[Entry] = []
        tip: Entry | ScopeRoot = entry
        while isinstance(tip, Entry) and not _has(tip, lineage):
            _put(tip, lineage)
            added.append(tip)
            tip = tip.parent
        if added and lineage != ANYBODY:
            tips = self._tips.setdefault((entry.root.account, lineage), {})
            if isinstance(tip, Entry):
                tips.pop(tip, None)
            tips[entry] = None
        return added

    def forget(self, entry: Entry) -> None:
        """The entry is gone: the one before it becomes the tip."""
        for lineage in entry.lineages:
            tips = self._tips.get((entry.root.account, lineage))
            if tips is None or entry not in tips:
                continue
            del tips[entry]
            parent = entry.parent
            if isinstance(parent, Entry) and _has(parent, lineage) and parent.placed:
                tips[parent] = None
            if not tips:
                del self._tips[entry.root.account, lineage]

    def purge(self, account: str, lineage: str) -> tuple[list[Entry], list[Entry]]:
        """Take the lineage from all its entries: (those that nobody else uses, tails first; those that others do)."""
        gone: list[Entry] = []
        kept: list[Entry] = []
        if lineage == ANYBODY:
            return gone, kept
        for tip in self._tips.pop((account, lineage), ()):
            entry: Entry | ScopeRoot = tip
            while isinstance(entry, Entry) and _has(entry, lineage):
                (kept if _take(entry, lineage) else gone).append(entry)
                entry = entry.parent
        return gone, kept

    def of(self, account: str) -> set[str]:
        """The lineages of an account that have entries."""
        return {lineage for owner, lineage in self._tips if owner == account}


def _has(entry: Entry, lineage: str) -> bool:
    used = entry.used_by
    return lineage in used if isinstance(used, set) else used == lineage


def _put(entry: Entry, lineage: str) -> None:
    used = entry.used_by
    if used is None:
        entry.used_by = lineage
    elif isinstance(used, set):
        used.add(lineage)
    else:
        entry.used_by = {used, lineage}


def _take(entry: Entry, lineage: str) -> bool:
    """Whether somebody else still uses the entry."""
    used = entry.used_by
    if isinstance(used, set):
        used.discard(lineage)
        return bool(used)
    entry.used_by = None
    return False
