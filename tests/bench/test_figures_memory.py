"""The figures of memory: small but real runs, held against what arithmetic says of the same requests."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from itertools import pairwise

import pytest

from bench import beams
from bench.figures import fig13, fig15, fig18, fig19, table1
from bench.figures.figure import Sample
from bench.results import reaches
from bench.simulation import beams as law
from bench.simulation.conversations import Limits, Turn, exchanges, rounds_of
from bench.simulation.cost_model import RooflineCost
from bench.simulation.hardware import A100_40GB, GIB
from bench.simulation.job import Job
from bench.simulation.jobs import arriving
from bench.simulation.loop import Outcome, Window, simulate
from bench.simulation.paged import PagedSystem
from bench.simulation.settings import SMALL, System
from bench.simulation.tiered import HostTier, TieredSystem, VirtualCopier, VirtualMemory
from bench.simulation.work import StepWork
from bench.traces.laws import Workload
from bench.workloads import random_tokens
from pagoda_inference.scheduling.swapping import Mode

SMALL_SAMPLE = Sample(requests=150, warm_up=30, seconds=1, workers=1)
COST: RooflineCost = SMALL.cost()
BLOCK = 16


# --- Table 1, figures 2 and 13 ----------------------------------------------------------------------------------------


def test_table_1_is_met_and_our_plan_leaves_a_tenth_of_what_is_left() -> None:
    [figure] = table1.make(SMALL_SAMPLE)
    values = {number.name: number for number in figure.numbers}
    assert all(reaches(number.value, number.goal) for number in figure.numbers if number.goal)
    plan = table1.plan_of(SMALL)
    assert plan.pool + plan.weights + plan.activations < A100_40GB.memory_bytes
    assert values["opt_13b.planned"].value == plan.total_blocks * BLOCK


@pytest.mark.parametrize("system", fig13.SYSTEMS)
def test_the_memory_is_divided_without_a_rest(system: System) -> None:
    case = fig13.Case(fig13.SHAREGPT, system, 300, seed=1)
    use = fig13._run(SMALL_SAMPLE, case).memory
    held = SMALL.slots if system is not System.PAGED else SMALL.slots // BLOCK * BLOCK
    assert use.total == pytest.approx(held)
    if system is System.MAX:
        assert use.external == pytest.approx(SMALL.slots - 7 * 2048)
    if system is System.ORACLE:
        assert use.internal == 0
    if system is System.PAGED:
        assert use.reservation == 0
        assert use.internal < 0.03 * use.total


# --- figure 15: sharing -----------------------------------------------------------------------------------------------


def shared_by_arithmetic(lengths: list[tuple[int, int]], width: int) -> float:
    """Percent: each sequence holds the blocks of its tokens, and the prompt's full ones are held once."""
    shared = sum(prompt // BLOCK * output for prompt, output in lengths)
    held = sum(-(-(prompt + done) // BLOCK) for prompt, output in lengths for done in range(output))
    return 100 * shared / held * (width - 1) / width


@pytest.mark.parametrize("width", fig15.WIDTHS)
def test_samples_save_their_prompts_full_blocks(width: int) -> None:
    case = fig15.Case(Workload.ALPACA, "samples", width)
    count = SMALL_SAMPLE.warm_up + fig15._requests(SMALL_SAMPLE, Workload.ALPACA, "samples")
    lengths = fig15.lengths_of(case, count, SMALL_SAMPLE)[SMALL_SAMPLE.warm_up :]
    assert fig15._run(SMALL_SAMPLE, case) == pytest.approx(shared_by_arithmetic(lengths, width), abs=0.7)


def test_beams_save_more_than_samples_and_more_of_them_more() -> None:
    sample = dataclasses.replace(SMALL_SAMPLE, requests=60)
    saved = [fig15._run(sample, fig15.Case(Workload.ALPACA, "beams", width)) for width in fig15.WIDTHS]
    assert all(more > fewer + 2 for fewer, more in pairwise(saved))
    assert all(25 < value < 100 * (1 - 1 / width) for value, width in zip(saved, fig15.WIDTHS, strict=True))


def test_coupled_lengths_are_the_same_lengths() -> None:
    rng = random.Random(1)
    drawn = [(rng.randint(1, 10_000), rng.randint(1, 10_000)) for _ in range(4_000)]
    coupled = fig15.coupled(drawn, -0.28, rng)
    for column in (0, 1):
        assert sorted(pair[column] for pair in coupled) == sorted(pair[column] for pair in drawn)
    assert statistics.correlation(*zip(*coupled, strict=True)) == pytest.approx(-0.28, abs=0.06)


def test_the_law_of_beams_is_recovered_from_what_it_draws() -> None:
    rng = random.Random(7)

    def drawn() -> list[float]:
        search = law.SimulatedBeams(4, 2, rng)
        return [math.exp(logprob) for logprob in search._candidates(8).logprobs]

    steps = []
    for _ in range(6_000):
        alike = drawn() if rng.random() < law.LIKENESS else None
        steps.append([alike or drawn() for _ in range(4)])
    found = beams.fitted(steps)
    assert found.likeness == pytest.approx(law.LIKENESS, abs=0.04)
    mean = law.CONFIDENCE[0] / sum(law.CONFIDENCE)
    assert found.confidence[0] / sum(found.confidence) == pytest.approx(mean, abs=0.08)


# --- figure 18: block sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 256])
def test_half_a_block_of_each_sequence_stays_empty(size: int) -> None:
    lengths = fig15.lengths_of(fig15.Case(Workload.SHAREGPT, "samples", 1), 250, SMALL_SAMPLE)
    system = SMALL.paged(size)
    outcome = simulate(system, COST, arriving(lengths, 1.0, 1), Window(50))
    being_computed = statistics.fmean(prompt for prompt, _ in lengths) * outcome.seconds / outcome.steps
    expected = outcome.running * (size + 1) / 2 + being_computed
    assert outcome.memory.internal == pytest.approx(expected, rel=0.15)


def test_the_smallest_and_the_largest_blocks_serve_slower() -> None:
    """At a rate that leaves no room: most lookups of blocks on one side, most empty slots on the other."""
    lengths = fig15.lengths_of(fig15.Case(Workload.SHAREGPT, "samples", 1), 200, SMALL_SAMPLE)
    latency = {}
    for size in (1, 32, 256):
        system = SMALL.paged(size)
        outcome = simulate(system, COST, arriving(lengths, fig18.RATES[Workload.SHAREGPT], 1), Window(50))
        latency[size] = outcome.normalised_latency_s
    assert latency[1] > 1.2 * latency[32]
    assert latency[256] > 1.2 * latency[32]


# --- figure 19: swapping ----------------------------------------------------------------------------------------------


def preempting(mode: Mode, *, as_paper: bool = False) -> tuple[TieredSystem, Outcome, list[StepWork]]:
    """Twelve requests that together need three times the pool."""
    jobs = [Job(number, 0.1 * number, 200, 600) for number in range(12)]
    system = TieredSystem(200, BLOCK, COST, HostTier(4 * GIB, mode, as_paper))
    works: list[StepWork] = []
    return system, simulate(system, COST, jobs, observe=lambda now, work: works.append(work)), works


def test_what_was_swapped_is_not_computed_again() -> None:
    prompts = 12 * 200
    system, outcome, works = preempting("swap")
    assert system.preemptions["swap"] > 3
    assert system.preemptions["recompute"] == 0
    assert sum(work.prompt_tokens for work in works) == prompts
    assert system.copier.copied % 2 == 0  # each block there and back
    assert all(work.swapped_blocks == 0 for work in works)
    system.scheduler.check()
    assert all(job.end_s is not None and not job.error for job in outcome.jobs)
    system, outcome, works = preempting("recompute")
    assert system.preemptions["recompute"] > 3
    assert sum(work.prompt_tokens for work in works) > prompts
    assert system.copier.copied == 0


def test_the_papers_steps_wait_for_their_copies_and_ours_do_not() -> None:
    system, outcome, works = preempting("swap", as_paper=True)
    assert sum(work.swapped_blocks for work in works) == system.copier.copied > 0
    assert outcome.normalised_latency_s > preempting("swap")[1].normalised_latency_s


def test_auto_takes_what_costs_less() -> None:
    assert preempting("auto")[0].preemptions["recompute"] == 0
    slow = dataclasses.replace(SMALL.device, host_bytes_per_s=1e9)
    cost = dataclasses.replace(COST, device=slow)
    system = TieredSystem(200, BLOCK, cost, HostTier(4 * GIB, "auto"))
    simulate(system, cost, [Job(number, 0.1 * number, 200, 600) for number in range(12)])
    assert system.preemptions["swap"] == 0
    assert system.preemptions["recompute"] > 3


def test_copies_end_one_after_the_other() -> None:
    memory = VirtualMemory(100, BLOCK, 1000)
    copier = VirtualCopier(memory, lambda blocks: 0.5 * blocks)
    ended: list[str] = []
    copier.now = 10.0
    copier.submit(lambda: memory.write_blocks([1, 2], []), lambda error: ended.append("first"))
    copier.submit(lambda: memory.write_blocks([3], [bytearray()]), lambda error: ended.append("second"))
    for now, expected in ((10.9, []), (11.0, ["first"]), (11.4, ["first"]), (11.5, ["first", "second"])):
        copier.now = now
        copier.poll()
        assert ended == expected
    assert copier.in_flight == 0
    assert copier.next_end is None


def test_small_blocks_are_copied_badly_apart_and_no_worse_packed() -> None:
    apart = [COST.swap_s(512 // size, size) for size in fig19.SIZES]
    packed = [COST.packed_swap_s(512 // size, size) for size in fig19.SIZES]
    assert all(more > fewer for more, fewer in pairwise(apart))
    assert max(packed) == pytest.approx(min(packed))
    assert max(packed) < min(apart) * 1.05


# --- conversations and the host tier ----------------------------------------------------------------------------------


def test_a_conversation_finds_itself_on_the_host_and_a_rival_does_not() -> None:
    """The pool holds two conversations: others come between the rounds of each. The rival says what they have said."""
    rng = random.Random(3)
    firsts = [random_tokens(400, rng) for _ in range(4)]
    rounds = [firsts, [[*first, *random_tokens(100, rng)] for first in firsts]]
    made = [
        Turn(0, begin + 10.0 * number, len(prompt), 50, tenant=tenant, tokens=prompt, conversation=f"{number}")
        for begin, tenant, prompts in ((0, "acme", rounds[0]), (100, "acme", rounds[1]), (600, "rival", rounds[1]))
        for number, prompt in enumerate(prompts)
    ]
    cached = {}
    for host_bytes in (0, 4 * GIB):
        jobs = [dataclasses.replace(job, number=number) for number, job in enumerate(made)]
        system = TieredSystem(60, BLOCK, COST, HostTier(host_bytes), keep=True)
        simulate(system, COST, jobs)
        cached[host_bytes] = [job.cached for job in jobs]
    assert cached[4 * GIB] == [0] * 4 + [400] * 4 + [0] * 4
    assert sum(cached[0]) < 400


def test_rounds_hold_everything_that_was_said() -> None:
    for conversation in exchanges(50, random.Random(3), 2048):
        assert sum(map(sum, conversation)) <= 2048
        rounds = rounds_of(conversation, Limits())
        assert len(rounds) == len(conversation)
        said = 0
        for one, (message, answer) in zip(rounds, conversation, strict=True):
            assert (one.before, one.prompt, one.message, one.answer) == (said, said + message, message, answer)
            said += message + answer


def test_a_pool_without_tiers_is_the_same_system() -> None:
    """A host tier of nothing changes nothing: the paged system to the last step."""
    runs = []
    for system in (TieredSystem(200, BLOCK, COST, HostTier(0, "swap")), PagedSystem(200, BLOCK)):
        jobs = [Job(number, 0.1 * number, 200, 600) for number in range(12)]
        simulate(system, COST, jobs)
        runs.append([job.end_s for job in jobs])
    assert runs[0] == runs[1]
