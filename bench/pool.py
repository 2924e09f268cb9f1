"""The KV pool and the scheduler alone: pure Python on one core, no model.

``pool.slots`` and ``pool.blocks``: time of ``schedule`` and ``complete`` together, per step, with 256 requests
answering and 2,000 waiting over 32 tenants (see ``bench.tenants_load``). In the first the running slots are what is
short, in the second the blocks. ``pool.block``: time to take a block and give it back, from free blocks and from a pool
full of cache, in calls of 1 and of 32 blocks. ``pool.size``: the same in pools of 1,000 to 1,000,000 blocks, greatest
median over least. ``pool.memory``: bookkeeping of one cached block. Python's garbage collector runs as it does in the
engine.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from dataclasses import dataclass

from bench import block_costs
from bench.progress import progress
from bench.results import Results, percentile
from bench.tenants_load import TenantsLoad

STEP_GOAL_MS, BLOCK_GOAL_US, SIZE_GOAL = "<=1.0", "<=1.5", "<=1.5"
SHORT = {"slots": (16_384, 256), "blocks": (6_400, 512)}
"""What is short -> (blocks of the pool, running slots): about 256 requests run in both."""

LOAD_COUNTS = ("decodes", "prompt_tokens", "admitted", "preempted", "ended", "running", "waiting")


@dataclass(frozen=True)
class Sample:
    """How much is measured. Steps come in rounds, the two kinds of shortage in turns."""

    warm_up_steps: int
    rounds: int
    steps: int
    sizes: tuple[int, ...]
    reference_size: int
    block_samples: int
    memory_blocks: int


WHOLE = Sample(600, 5, 300, (1_000, 10_000, 100_000, 1_000_000), 100_000, 200, 100_000)
QUICK = Sample(60, 2, 30, (1_000, 10_000), 10_000, 20, 10_000)


def run(results: Results, options: argparse.Namespace) -> None:
    sample = QUICK if options.quick else WHOLE
    results.add_value("pool.gc", {"enabled": gc.isenabled(), "threshold": gc.get_threshold()})
    _steps(results, sample, options.repeats or sample.rounds)
    _blocks(results, sample)
    results.add("pool.memory.bytes_per_block", block_costs.bytes_per_block(sample.memory_blocks), unit="bytes")


def _steps(results: Results, sample: Sample, rounds: int) -> None:
    loads = {short: TenantsLoad(blocks, max_running=slots) for short, (blocks, slots) in SHORT.items()}
    for load in loads.values():
        load.run(sample.warm_up_steps, measured=False)
    for _ in progress(range(rounds), "pool steps"):
        for load in loads.values():
            load.run(sample.steps, measured=True)
    for short, load in loads.items():
        taken = load.samples
        steps = [1e3 * (s + c) for s, c in zip(taken["schedule"], taken["complete"], strict=True)]
        results.add(f"pool.{short}.step_ms", steps, unit="ms", goal=STEP_GOAL_MS)
        results.add(f"pool.{short}.step_p99_ms", percentile(steps, 99), unit="ms")
        for verb in ("schedule", "complete", "finish", "add"):
            results.add(f"pool.{short}.{verb}_ms", [1e3 * value for value in taken[verb]], unit="ms")
        # A mean, because most steps have none of some of them.
        load_of_step = {name: round(statistics.fmean(taken[name]), 2) for name in LOAD_COUNTS}
        results.add_value(f"pool.{short}.load", load_of_step | {"hit_ratio": round(load.hit_ratio(), 3)})


def _blocks(results: Results, sample: Sample) -> None:
    medians: dict[tuple[str, int], list[float]] = {}
    for size, state, blocks, seconds in block_costs.times(list(sample.sizes), sample.block_samples):
        microseconds = [1e6 * value for value in seconds]
        goal = BLOCK_GOAL_US if size == sample.reference_size else None
        median = results.add(f"pool.block.{state}_by_{blocks}_us[{size}]", microseconds, unit="us", goal=goal)
        medians.setdefault((state, blocks), []).append(median)
    for (state, blocks), values in medians.items():
        results.add(f"pool.size.{state}_by_{blocks}_ratio", max(values) / min(values), goal=SIZE_GOAL)
