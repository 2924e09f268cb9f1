"""Demotion runs ahead of eviction, but no faster than the tiers below take what is given up for it."""

from __future__ import annotations

from pathlib import Path

from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.tiers.copier import ManualCopier
from pagoda_inference.kv.tiers.tiers import Tiers
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.protocol import Account
from tests.kv.tiers.small_engine import SIZE, BytesBackend

BLOCKS, HOST_BLOCKS = 128, 32


def test_a_host_that_is_full_passes_whole_chains_on_to_the_disk(tmp_path: Path) -> None:
    backend, copier = BytesBackend(), ManualCopier()
    tiers = Tiers(
        backend,  # type: ignore[arg-type]
        host_bytes=HOST_BLOCKS * SIZE,
        disk_bytes=2 * BLOCKS * SIZE,
        folder=tmp_path,
        model="bytes",
        copier=copier,
    )
    pool = Pool(BLOCKS, backend.block_size, model="bytes", secret=tiers.secret)
    transfers = Transfers(pool, tiers)
    pool.accounts.replace([Account("acme"), Account("rival")], 1)
    transfers.set_quotas(pool.accounts)
    for account in ("acme", "rival"):
        fill(pool, account, BLOCKS // 2)
    transfers.poll()
    while transfers.in_flight or not tiers.idle:
        copier.release()
        transfers.poll()
    assert tiers.counters["host"].dropped == 0
    held = {account: tiers.usage(account) for account in ("acme", "rival")}
    assert sum(usage.host + usage.disk for usage in held.values()) == BLOCKS * SIZE
    tiers.close()


def fill(pool: Pool, account: str, blocks: int) -> None:
    """A prompt of the account is computed, and its request has ended."""
    tokens = [len(account) + place for place in range(blocks * pool.block_size)]
    ledger = pool.accounts.find(account)
    assert ledger is not None
    table = pool.open_table(ledger, pool.chain(account, f"tenant:{account}"))
    pool.append(table, 0, len(tokens))
    pool.commit(table, tokens, len(tokens))
    pool.free(table)
