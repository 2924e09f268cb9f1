"""What is done to many at once is done in the order they came: the same requests have the same course every time.

Objects hash by their address, so a set of them has another order in every run.
"""

from __future__ import annotations

from pathlib import Path

from pagoda_inference.kv.entry import Entry, ScopeRoot
from pagoda_inference.kv.lineages import Lineages
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.tiers.space import Copy, Space, TierQuota
from tests.kv.tiers.small_engine import SIZE, SmallEngine

MANY = 100


def chain_ends(account: str) -> list[Entry]:
    """Entries side by side, after the account's root."""
    root = ScopeRoot(account, "all", b"", b"")
    return [Entry(bytes([place]), bytes([place]), root, root) for place in range(MANY)]


def test_a_purged_lineage_names_entries_in_the_order_of_their_use():
    lineages = Lineages()
    for own, rivals in zip(ends := chain_ends("acme"), chain_ends("globex"), strict=True):
        lineages.add(own, "talk")
        lineages.add(rivals, "talk")
    gone, kept = lineages.purge("acme", "talk")
    assert gone == ends
    assert kept == []


def test_an_accounts_copies_are_in_the_order_they_came():
    space = Space(2 * MANY * SIZE, SIZE)
    copies = [Copy(account, None) for _ in range(MANY) for account in ("acme", "globex")]
    for copy in copies:
        space.add(copy)
    space.remove(copies[0])
    space.touch(copies[2])
    assert space.copies_of("acme") == copies[2::2]


def test_a_deleted_accounts_entries_are_gone_in_the_order_they_came(tmp_path: Path):
    engine = SmallEngine(tmp_path, host=2 * MANY)
    entries = engine.stored("acme", *(str(index) for index in range(MANY)))
    kept = engine.stored("globex", "kept")
    engine.tiers.set_quotas({"globex": TierQuota()})
    engine.run()
    assert engine.gone == entries
    assert kept[0].host is not None


def test_tables_are_in_the_order_they_were_opened():
    pool = Pool(4, 4, secret=b"test")
    tables = []
    for _ in range(MANY):
        for account in ("acme", "globex"):
            ledger = pool.accounts.find(account)
            tables.append(pool.open_table(ledger, pool.chain(account, f"tenant:{account}"), ""))
    pool.free(tables[0])
    assert list(pool.tables) == tables[1:]
