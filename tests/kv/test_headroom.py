"""Who comes leaves blocks to those that run, so that their next blocks need no preemption."""

from __future__ import annotations

import random

import pytest

from pagoda_inference.protocol import Account
from pagoda_inference.scheduling import workload
from pagoda_inference.scheduling.sequence import RequestState
from tests.kv.simulation import Simulation, prompt

BUDGET = 64


def test_a_newcomer_leaves_half_a_block_for_each_that_runs() -> None:
    simulation = Simulation(17, 4, token_budget=BUDGET)
    running = [simulation.submit("acme", prompt(13, seed), 30) for seed in range(3)]  # 4 blocks each: 5 are left
    simulation.steps(1)
    fits = simulation.submit("acme", prompt(13, 7), 4)  # would need all of them
    simulation.steps(1)
    assert simulation.pool.accounts.room(fits.ledger) == 5
    assert fits.state is RequestState.WAITING
    small = simulation.submit("acme", prompt(9, 5), 4)  # needs 4
    simulation.steps(1)
    assert small.state is RequestState.RUNNING
    simulation.run()
    assert all(simulation.finished[request.id][1] == "stop" for request in (*running, fits, small))


def test_the_first_request_of_another_tenant_comes_at_once() -> None:
    simulation = Simulation(17, 4, token_budget=BUDGET)
    for seed in range(3):
        simulation.submit("acme", prompt(13, seed), 30)
    simulation.steps(1)
    first = simulation.submit("globex", prompt(13, 7), 4)
    simulation.steps(1)
    assert first.state is RequestState.RUNNING


def test_alone_a_request_may_have_the_whole_pool() -> None:
    simulation = Simulation(5, 4, token_budget=BUDGET)
    request = simulation.submit("acme", prompt(16), 2)
    simulation.steps(1)
    assert request.state is RequestState.RUNNING


def test_what_a_reservation_promises_is_there_at_once() -> None:
    accounts = [Account("acme"), Account("globex", reservation=9)]
    simulation = Simulation(17, 4, accounts=accounts, token_budget=BUDGET)
    for account, seed in (("acme", 0), ("acme", 1), ("globex", 2)):
        simulation.submit(account, prompt(13, seed), 30)
    simulation.steps(1)
    promised = simulation.submit("globex", prompt(13, 7), 4)
    simulation.steps(1)
    assert promised.state is RequestState.RUNNING


def recomputed(seed: int) -> int:
    """Prompt tokens that a crowded pool computes more than once."""
    random_ = random.Random(seed)
    simulation = Simulation(120, 4, token_budget=BUDGET, max_running=32)
    computed = 0
    for _ in range(160):
        account = random_.choice(["acme", "globex", "initech"])
        simulation.submit(account, [random_.randrange(4) for _ in range(random_.randint(4, 40))], 24)
    requests = list(simulation.scheduler.waiting)
    while simulation.scheduler.has_work:
        step = simulation.step()
        computed += sum(chunk.count for chunk in step.chunks if chunk.count > 1)
    known = sum(request.prompt_length - request.cached_tokens for request in requests)
    return max(0, computed - known)


def test_less_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with_headroom = sum(recomputed(seed) for seed in range(3))
    monkeypatch.setattr(workload, "HEADROOM", 0)
    without = sum(recomputed(seed) for seed in range(3))
    assert with_headroom < 0.75 * without, f"{with_headroom} with headroom, {without} without"
