"""The pool's benchmark runs, and reports everything it has goals for."""

from __future__ import annotations

import argparse

from bench import block_costs, pool
from bench.results import Results, percentile
from bench.tenants_load import TENANTS, TenantsLoad

QUICK = argparse.Namespace(quick=True, repeats=1)


def test_a_quick_run_reports_every_goal() -> None:
    results = Results("pool")
    pool.run(results, QUICK)
    goals = {result["name"] for result in results.results if "goal" in result}
    states = [f"{state}_by_{blocks}" for state in ("free", "cached") for blocks in block_costs.CALLS]
    expected = {"pool.slots.step_ms", "pool.blocks.step_ms"}
    expected |= {f"pool.block.{state}_us[{pool.QUICK.reference_size}]" for state in states}
    expected |= {f"pool.size.{state}_ratio" for state in states}
    assert goals == expected


def test_the_load_is_steady_and_finds_prefixes() -> None:
    load = TenantsLoad(4096, max_running=TENANTS, requests=4 * TENANTS)
    load.run(200, measured=True)
    together = {run + wait for run, wait in zip(load.samples["running"], load.samples["waiting"], strict=True)}
    assert together == {4 * TENANTS}
    # One slot in eight is there besides, for tenants that have none.
    assert TENANTS <= max(load.samples["running"]) <= TENANTS + TENANTS // 8
    assert sum(load.samples["ended"]) > 0
    assert load.hit_ratio() > 0


def test_samples_leave_a_pool_as_full_of_cache_as_it_was() -> None:
    blocks = block_costs.Blocks(1024, cached=True)
    for blocks_per_call in block_costs.CALLS:
        assert blocks.sample(blocks_per_call) > 0
        assert blocks.pool.free_blocks == 0
        assert len(blocks.pool.index) == 1024


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
