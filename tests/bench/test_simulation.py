"""Serving systems in virtual time: memory is counted to the slot, time is what the cost model says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from bench.simulation.beams import SimulatedBeams, copied_beams
from bench.simulation.buddy import BuddyAllocator
from bench.simulation.contiguous import (
    ContiguousSystem,
    RowLimits,
    reserve_exactly,
    reserve_most,
    reserve_power_of_two,
)
from bench.simulation.job import Job
from bench.simulation.jobs import arriving, pairs
from bench.simulation.loop import Outcome, Window, simulate
from bench.simulation.paged import PagedSystem
from bench.simulation.rates import Runs, highest
from bench.simulation.settings import LARGE, MIDDLE, SMALL, Setting, System
from bench.simulation.static_batching import StaticBatchingSystem
from bench.simulation.system import ServingSystem
from bench.simulation.work import StepWork
from bench.traces.laws import Workload
from pagoda_inference.protocol import Account

SLOTS = 4096


@dataclass(frozen=True)
class TokensCost:
    """A second for each step, and a millisecond for each prompt token."""

    def seconds(self, work: StepWork) -> float:
        return 1.0 + work.prompt_tokens / 1000


SYSTEMS: dict[str, Callable[[], ServingSystem]] = {
    "paged": lambda: PagedSystem(SLOTS // 16),
    "kept": lambda: PagedSystem(SLOTS // 16, keep=True),
    "max": lambda: ContiguousSystem(SLOTS, reserve_most(512), RowLimits(64, 512)),
    "pow2": lambda: ContiguousSystem(SLOTS, reserve_power_of_two(512), RowLimits(64, 512)),
    "oracle": lambda: ContiguousSystem(SLOTS, reserve_exactly(512), RowLimits(64, 512)),
    "static": lambda: StaticBatchingSystem(SLOTS, 512, SLOTS // 512),
}


def some_jobs(count: int, rate: float, seed: int = 1, **fields: int) -> list[Job]:
    rng = random.Random(seed)
    lengths = [(rng.randint(1, 200), rng.randint(1, 200)) for _ in range(count)]
    return arriving(lengths, rate, seed, **fields)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("fields", [{}, {"samples": 3}, {"beam_width": 4}], ids=["one", "samples", "beams"])
def test_every_job_ends_with_all_its_tokens_and_the_memory_is_whole(name: str, fields: dict[str, int]) -> None:
    system, jobs = SYSTEMS[name](), some_jobs(120, 0.1, **fields)
    rows = []

    def observe(now: float, work: StepWork) -> None:
        rows.append(work.rows + work.prompt_rows)
        assert system.memory().total == pytest.approx(SLOTS)
        assert min(system.memory().tokens, system.memory().internal, system.memory().external) >= 0

    simulate(system, TokensCost(), jobs, observe=observe)
    assert all(job.end_s is not None and not job.error for job in jobs)
    assert all(job.arrival_s < (job.first_token_s or 0) <= (job.end_s or 0) for job in jobs)
    assert system.running == system.waiting == 0
    if name in ("max", "pow2", "oracle"):  # nobody is preempted, nobody computes beyond an end
        assert sum(rows) == sum(job.output * job.width for job in jobs)


def test_a_job_alone_takes_a_step_for_each_token() -> None:
    for name, make in SYSTEMS.items():
        [job] = jobs = [Job(0, 5.0, 100, 20)]
        simulate(make(), TokensCost(), jobs)
        assert job.first_token_s == pytest.approx(5 + 1.1), name
        assert job.end_s == pytest.approx(5 + 1.1 + 19), name
        assert job.normalised_latency_s == pytest.approx(20.1 / 20), name


def test_a_static_batch_answers_all_when_the_last_has_ended_and_then_takes_the_next() -> None:
    jobs = [Job(0, 0.0, 10, 5), Job(1, 0.0, 10, 50), Job(2, 1.5, 10, 1)]
    simulate(SYSTEMS["static"](), TokensCost(), jobs)
    assert jobs[0].end_s == jobs[1].end_s == pytest.approx(50 + 0.02)
    assert jobs[2].end_s == pytest.approx(50.02 + 1.01)


def test_a_static_batch_has_room_for_its_longest_prompt_with_its_longest_output() -> None:
    """Neither of the two is too long, but a padded batch of both would be."""
    jobs = [Job(0, 0.0, 500, 5), Job(1, 0.0, 10, 400)]
    simulate(SYSTEMS["static"](), TokensCost(), jobs)
    assert (jobs[0].end_s or 0) < (jobs[1].first_token_s or 0)


def test_orcas_beams_copy_what_they_have_reserved_and_begin_each_copy_apart() -> None:
    works: list[StepWork] = []
    jobs = [Job(0, 0.0, 10, 20, beam_width=4)]
    simulate(SYSTEMS["max"](), TokensCost(), jobs, observe=lambda now, work: works.append(work))
    copying = [work for work in works if work.copies]
    assert len(copying) >= len(works) - 1
    assert all(0 < work.copies <= 4 for work in copying)
    assert all(work.copied_tokens == pytest.approx(work.copies * 512, rel=0.5) for work in copying)
    cost = SMALL.cost()
    apart, together = (StepWork(rows=4, copied_tokens=512, copies=copies) for copies in (3, 0))
    begun = 3 * 2 * SMALL.model.layers * cost.efficiency.transfer_s
    assert cost.seconds(apart) - cost.seconds(together) == pytest.approx(begun)


def test_first_come_first_served_holds_back_who_would_fit() -> None:
    """Half the memory is taken, the second needs all of it: the third waits, though it would fit."""
    jobs = [Job(0, 0.0, 1024, 1024), Job(1, 0.1, 2048, 2048), Job(2, 0.2, 8, 8)]
    system = ContiguousSystem(SLOTS, reserve_exactly(4096), RowLimits(8, 4096))
    simulate(system, TokensCost(), jobs)
    assert (jobs[0].end_s or 0) < (jobs[1].first_token_s or 0)
    assert (jobs[1].end_s or 0) < (jobs[2].first_token_s or 0)


def test_a_job_that_can_never_run_ends_with_an_error_and_holds_nobody_up() -> None:
    for name, make in SYSTEMS.items():
        jobs = [Job(0, 0.0, SLOTS * 2, 10), Job(1, 0.0, 10, 10)]
        simulate(make(), TokensCost(), jobs)
        if name == "max":  # reserves the longest sequence whatever the prompt
            continue
        assert jobs[0].error, name
        assert not jobs[1].error, name


def test_a_full_paged_pool_preempts_and_loses_nothing() -> None:
    jobs = [Job(number, 0.0, 500, 500) for number in range(8)]
    outcome = simulate(SYSTEMS["paged"](), TokensCost(), jobs)
    assert sum(job.preemptions for job in jobs) > 0
    assert all(job.end_s is not None and not job.error for job in jobs)
    assert outcome.memory.tokens > 0.8 * SLOTS


def test_samples_share_their_prompt_in_the_paged_pool_alone() -> None:
    lengths = [(320, 32)]
    last: dict[str, tuple[int, int]] = {}
    for name in ("paged", "oracle"):
        system = SYSTEMS[name]()

        def observe(now: float, work: StepWork, name: str = name, system: ServingSystem = system) -> None:
            last[name] = system.sharing()

        simulate(system, TokensCost(), arriving(lengths, 1.0, 1, samples=4), observe=observe)
    assert last["paged"] == (20 + 4 * 2, 4 * 22)  # the 20 full blocks of the prompt are held once
    assert last["oracle"][0] == last["oracle"][1]


def test_the_prefix_is_found_again_only_where_it_is_kept_and_never_by_a_rival() -> None:
    prompt = list(range(2000, 2000 + 320))
    for keep, expected in ((True, 304), (False, 0)):
        system = PagedSystem(SLOTS // 16, keep=keep, accounts=[Account("acme"), Account("rival")])
        jobs = [
            Job(0, 0.0, 320, 10, tenant="acme", tokens=prompt),
            Job(1, 100.0, 320, 10, tenant="acme", tokens=prompt),
            Job(2, 200.0, 320, 10, tenant="rival", tokens=prompt),
        ]
        simulate(system, TokensCost(), jobs)
        assert [job.cached for job in jobs] == [0, expected, 0]


def test_the_warm_up_is_not_measured() -> None:
    jobs = some_jobs(50, 0.05)
    outcome = simulate(SYSTEMS["oracle"](), TokensCost(), jobs, Window(warm_up=30))
    assert outcome.jobs == jobs[30:]
    with pytest.raises(ValueError, match="warm-up"):
        simulate(SYSTEMS["oracle"](), TokensCost(), jobs, Window(warm_up=50))


def test_a_hopeless_run_ends_early_and_a_good_one_does_not() -> None:
    jobs = some_jobs(300, 50.0)
    assert simulate(SYSTEMS["max"](), TokensCost(), jobs, Window(latency_limit_s=2.0)).lost
    jobs = some_jobs(100, 0.001)
    assert not simulate(SYSTEMS["max"](), TokensCost(), jobs, Window(latency_limit_s=2.0)).lost


def test_the_sustained_rate_is_where_the_limit_is_crossed() -> None:
    lengths = pairs(Workload.ALPACA, 200, random.Random(2))

    tried: dict[float, Outcome] = {}

    def run(rate: float) -> Outcome:
        window = Window(20, latency_limit_s=2.0)
        tried[rate] = simulate(SYSTEMS["oracle"](), TokensCost(), arriving(lengths, rate, 7), window)
        return tried[rate]

    for start in (0.001, 0.2, 100.0):
        tried.clear()
        runs = Runs(run, limit_s=2.0)
        rate = highest(runs.sustains, start=start, tolerance=0.02)
        assert runs.best is not None
        assert runs.best.normalised_latency_s == runs.points[rate] <= 2.0
        above = min(at for at in tried if at > rate)
        assert above <= rate * 1.02
        assert tried[above].lost or tried[above].normalised_latency_s > 2.0
        assert [at for at, _ in runs.curve] == sorted(runs.points)


@pytest.mark.parametrize("name", ["paged", "oracle", "static"])
@pytest.mark.parametrize("fields", [{"samples": 3}, {"beam_width": 4}], ids=["samples", "beams"])
def test_sequences_of_one_request_are_told_from_those_of_others(name: str, fields: dict[str, int]) -> None:
    width = max(fields.values())

    def observe(now: float, work: StepWork) -> None:
        rows = work.rows + work.prompt_rows
        assert rows % width == 0
        assert work.siblings == rows - rows // width

    jobs = [Job(number, 0.0, 40, 30, **fields) for number in range(3)]
    simulate(SYSTEMS[name](), TokensCost(), jobs, observe=observe)
    cost = SMALL.cost()
    alone, together = (cost.host_s(StepWork(rows=12, siblings=count)) for count in (0, 12 - 12 // width))
    assert cost.efficiency.step_s < together < alone


def test_arrivals_keep_their_pattern_at_every_rate() -> None:
    slow, fast = (arriving([(1, 1)] * 50, rate, 3) for rate in (1.0, 4.0))
    assert [job.arrival_s for job in slow] == pytest.approx([4 * job.arrival_s for job in fast])


# --- the allocator ----------------------------------------------------------------------------------------------------


def test_the_arenas_are_the_binary_digits() -> None:
    buddy = BuddyAllocator(15_728)
    assert sum(buddy.allocate(2048) is not None for _ in range(10)) == 7
    assert [buddy.allocate(size) is not None for size in (1024, 1024, 256, 64, 32, 16, 16)] == [
        True, False, True, True, True, True, False,
    ]  # fmt: skip
    assert buddy.allocated == 15_728


def test_chunks_do_not_overlap_and_join_again() -> None:
    rng = random.Random(5)
    buddy = BuddyAllocator(3000)
    held: dict[int, int] = {}
    for _ in range(4000):
        if held and rng.random() < 0.5:
            begin = rng.choice(list(held))
            buddy.free(begin, held.pop(begin))
            continue
        size = rng.randint(1, 700)
        if (begun := buddy.allocate(size)) is None:
            continue
        held[begun] = size
        spans = sorted((start, start + buddy.chunk_size(taken)) for start, taken in held.items())
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
        assert spans[-1][1] <= 3000
        assert buddy.allocated == sum(map(buddy.chunk_size, held.values()))
    for start, taken in held.items():
        buddy.free(start, taken)
    assert buddy.allocated == 0
    assert buddy.allocate(2048) is not None


# --- beams ------------------------------------------------------------------------------------------------------------


def test_beams_run_to_their_length_and_more_of_them_copy_more() -> None:
    beams = SimulatedBeams(4, 30, random.Random(1))
    widths = [len(beams.advance()) for _ in range(30)]
    assert widths == [4] * 29 + [0]
    assert 0 < copied_beams(2) < copied_beams(4) < copied_beams(6) < 6


# --- the paper's machines ---------------------------------------------------------------------------------------------


def test_the_machines_are_those_of_table_1() -> None:
    assert [SMALL.slots, LARGE.slots] == [15_728, 60_074]
    assert MIDDLE.slots == pytest.approx(9_700, rel=0.01)
    assert [setting.model.kv_bytes_per_token for setting in (SMALL, MIDDLE, LARGE)] == [819_200, 2_359_296, 4_718_592]


@pytest.mark.parametrize(("setting", "rows"), [(SMALL, (5, 14, 7)), (MIDDLE, (2, 8, 4)), (LARGE, (24, 80, 29))])
def test_fastertransformer_has_the_authors_batches_and_no_python(setting: Setting, rows: tuple[int, int, int]) -> None:
    for workload, most in zip((Workload.SHAREGPT, Workload.ALPACA, Workload.WMT16), rows, strict=True):
        system = setting.build(System.STATIC, workload)
        for number in range(100):
            system.arrive(Job(number, 0.0, 10, 10), 0.0)
        system.begin_step(0.0)
        assert system.running == most
    compiled, python = (setting.cost(system).host_s(StepWork(rows=24)) for system in (System.STATIC, System.ORACLE))
    assert compiled < python / 5


def test_finding_a_block_costs_every_head_the_same() -> None:
    """A kernel looks a block up for each head: dividing the heads among devices divides that, and no more."""
    works = [StepWork(rows=8, context=8000, block_size=size) for size in (16, 0)]
    seconds = {}
    for setting in (SMALL, LARGE):
        paged, contiguous = (setting.cost().attention_s(work) for work in works)
        heads = setting.model.hidden / 128
        seconds[setting] = (paged - contiguous) * setting.devices / setting.model.layers / heads
    assert seconds[SMALL] == pytest.approx(seconds[LARGE])


@pytest.mark.parametrize("system", System)
def test_every_system_is_built_on_every_machine(system: System) -> None:
    for setting in (SMALL, MIDDLE, LARGE):
        jobs = some_jobs(20, 1.0)
        simulate(setting.build(system), setting.cost(), jobs)
        assert all(not job.error for job in jobs)


def test_a_step_costs_more_with_everything_that_it_does() -> None:
    base = {"prompt_tokens": 100, "prompt_pairs": 5e3, "prompt_rows": 1, "rows": 8, "context": 4000, "block_size": 16}
    more = {
        "prompt_tokens": 4000, "prompt_pairs": 5e6, "prompt_rows": 9, "rows": 300, "context": 90_000,
        "block_size": 1, "copied_tokens": 50_000, "swapped_blocks": 500,
    }  # fmt: skip
    for setting in (SMALL, MIDDLE, LARGE):
        cost = setting.cost()
        seconds = cost.seconds(StepWork(**base))  # type: ignore[arg-type]
        for name, value in more.items():
            assert cost.seconds(StepWork(**{**base, name: value})) > seconds, name  # type: ignore[arg-type]
