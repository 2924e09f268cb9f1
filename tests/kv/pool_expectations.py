"""What the rules say of a pool, computed the long way."""

from __future__ import annotations

from typing import Any

from pagoda_inference.kv.accounts import Ledger
from pagoda_inference.kv.entry import Entry, ScopeRoot
from pagoda_inference.kv.pool import Pool


def snapshot(pool: Pool) -> tuple[Any, ...]:
    """Everything that a failed verb must leave as it is."""
    return (
        pool.free_blocks,
        pool.accounts.committed,
        pool.accounts.reserved,
        [_ledger(ledger) for ledger in pool.accounts],
        [(block.references, block.account and block.account.id, block.entry) for block in pool.known_blocks()],
        {(entry.key, entry.block and entry.block.id, frozenset(entry.lineages)) for entry in pool.index},
        {(table, tuple(table.blocks), table.findable, table.capacity, table.forked) for table in pool.tables},
    )


def _ledger(ledger: Ledger) -> tuple[Any, ...]:
    quota = ledger.id, ledger.reservation, ledger.limit, ledger.retired
    return *quota, ledger.active, ledger.shared, list(ledger.lru), dict(ledger.evictions), dict(ledger.evicted_by)


def check_victims(lost: dict[Ledger, int], taker: Ledger) -> None:
    """Nobody lost a block to another while somebody had more above its reservation, nor below it."""
    for victim, count in lost.items():
        if victim is taker or not count:
            continue
        assert victim.held >= victim.reservation, "evicted below its reservation by another"
        least = (victim.held + 1 - victim.reservation) / victim.weight
        for other in lost:
            if other is not taker and other is not victim and other.lendable:
                assert least >= (other.held - other.reservation) / other.weight - 1e-9, "another has more excess"


def reachable(pool: Pool) -> list[Entry]:
    """Entries that everything before them can be found of, too."""
    return [entry for entry in pool.index if _reaches_root(pool, entry)]


def _reaches_root(pool: Pool, entry: Entry | ScopeRoot) -> bool:
    while isinstance(entry, Entry):
        if not pool.index.is_known(entry):
            return False
        entry = entry.parent
    return True


def orphans(pool: Pool) -> set[Entry]:
    """Entries whose parent is gone."""
    return {entry for entry in pool.index if pool.index.orphan(entry.key) is entry}
