"""Virtual Token Counter fairness: the bound at every step, and what idleness, limits, classes and weights do."""

from __future__ import annotations

import os
import random

import pytest

from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.fairness import VirtualTokenCounters
from pagoda_inference.scheduling.scheduler import RequestRefused
from pagoda_inference.scheduling.sequence import RequestState
from tests.kv.fairness_monitor import FairnessMonitor
from tests.kv.world import World

SEEDS = range(max(20, int(os.environ.get("PAGODA_TEST_EXAMPLES", "200")) // 5))
TENANTS = ["acme", "globex", "initech", "umbrella"]


def tokens(random_: random.Random, length: int) -> list[int]:
    return [random_.randrange(4) for _ in range(length)]


def watch_a_random_workload(seed: int, pool: str) -> FairnessMonitor:
    """Floods, bursts and trickles of long prompts and long answers, with any weights."""
    random_ = random.Random(seed)
    names = TENANTS[: random_.randint(2, 4)]
    accounts = [Account(name, weight=random_.choice([0.5, 1.0, 2.0, 3.0])) for name in names]
    blocks = random_.randint(24, 48) if pool == "tight" else 600
    budget = random_.randint(8, 24)
    world = World(blocks, 4, accounts=accounts, token_budget=budget, max_running=random_.choice([2, 4, 8, budget]))
    monitor = FairnessMonitor(world)
    habits = {name: (random_.choice([4, 20, 60]), random_.choice([2, 12, 40]), random_.random()) for name in names}
    for step in range(300):
        for name, (prompt, output, rate) in habits.items():
            if step < 220 and random_.random() < (5 * rate if step < 4 else rate * 0.3):
                try:
                    world.submit(
                        name,
                        tokens(random_, random_.randint(1, prompt)),
                        random_.randint(1, output),
                        request_class=random_.choice(["interactive", "api"]),
                    )
                except RequestRefused as refusal:
                    assert refusal.error.code == "kv_limit_exceeded"
        monitor.step()
    world.check()
    return monitor


@pytest.mark.parametrize("pool", ["tight", "ample"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_holds_at_every_step(seed: int, pool: str) -> None:
    watch_a_random_workload(seed, pool)


def test_the_monitor_notices_unfairness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with prompts for nothing the bound is broken."""
    monkeypatch.setattr(VirtualTokenCounters, "charge_input", staticmethod(lambda ledger, tokens: None))

    def watch() -> None:
        for seed in range(20):
            watch_a_random_workload(seed, "tight")

    with pytest.raises(AssertionError, match="service drifted"):
        watch()


def flood(world: World, account: str, requests: int, prompt: int, output: int, seed: int = 0) -> None:
    random_ = random.Random(f"{account} {seed}")
    for _ in range(requests):
        world.submit(account, tokens(random_, prompt), output)


def service(monitor: FairnessMonitor, steps: int) -> dict[str, float]:
    before = dict(monitor.service)
    for _ in range(steps):
        monitor.step()
    return {name: monitor.service[name] - before.get(name, 0) for name in monitor.service}


def test_weights_one_to_three_give_service_one_to_three() -> None:
    world = World(600, 4, accounts=[Account("acme"), Account("globex", weight=3.0)], token_budget=16, max_running=6)
    monitor = FairnessMonitor(world)
    for account in ("acme", "globex"):
        flood(world, account, 300, 30, 6)
    served = service(monitor, 800)
    assert abs(served["acme"] - served["globex"]) <= monitor.bound("acme", "globex"), "per weight they are equal"
    assert served["acme"] > 1000
    assert monitor.backlogged_steps["acme", "globex"] > 700


def test_an_idle_tenant_earns_no_credit() -> None:
    """It comes back beside the others, not ahead of them for all the time it was away."""
    world = World(600, 4, accounts=[Account("acme"), Account("globex")], token_budget=16, max_running=6)
    monitor = FairnessMonitor(world)
    flood(world, "acme", 400, 30, 6)
    flood(world, "globex", 1, 8, 1)
    alone = service(monitor, 300)
    assert alone["acme"] > 2000
    flood(world, "globex", 200, 30, 6)
    together = service(monitor, 200)
    assert abs(together["acme"] - together["globex"]) <= monitor.bound("acme", "globex")


def test_a_tenant_blocked_at_its_own_limit_earns_no_credit() -> None:
    world = World(600, 4, accounts=[Account("acme"), Account("globex", limit=8)], token_budget=16, max_running=6)
    monitor = FairnessMonitor(world)
    flood(world, "acme", 400, 20, 6)
    flood(world, "globex", 200, 20, 8)
    blocked = service(monitor, 300)
    assert blocked["globex"] < blocked["acme"] / 2, "its limit keeps it back"
    world.set_accounts([Account("acme"), Account("globex")], 2)
    together = service(monitor, 200)
    assert abs(together["acme"] - together["globex"]) <= monitor.bound("acme", "globex")


def test_classes_order_the_requests_of_one_tenant_and_nobody_elses() -> None:
    world = World(600, 4, accounts=[Account("acme"), Account("globex")], token_budget=16, max_running=2)
    holders = [world.submit(account, [1] * 8, 12) for account in ("acme", "globex")]
    world.step()
    classes = ["batch", "api", "interactive"]
    requests = {name: world.submit("acme", [2] * 12, 2, request_class=name) for name in classes}
    rival = world.submit("globex", [2] * 12, 2, request_class="batch")
    world.run()
    ends = [request for request, _ in world.finished.values() if request in requests.values()]
    assert [request.request_class for request in ends] == ["interactive", "api", "batch"]
    order = [request for request, _ in world.finished.values()]
    assert order.index(rival) < order.index(requests["batch"]), "a rival's batch does not wait for all of acme's"
    assert all(request in order for request in holders)


@pytest.mark.parametrize("seed", range(6))
def test_nobody_starves_beside_floods(seed: int) -> None:
    """A small tenant's requests end while two others flood a tight pool, each before long."""
    random_ = random.Random(seed)
    accounts = [Account("acme", weight=3.0), Account("globex", weight=3.0), Account("initech", weight=0.5)]
    world = World(32, 4, accounts=accounts, token_budget=16, max_running=4)
    waits = []
    for _ in range(5):
        request = world.submit("initech", tokens(random_, 24), 8)
        for steps in range(1500):
            for name in ("acme", "globex"):
                if len(world.scheduler.waiting.of(name)) < 4:
                    world.submit(name, tokens(random_, random_.randint(8, 40)), random_.randint(8, 40))
            world.step()
            if request.state is RequestState.FINISHED:
                waits.append(steps)
                break
        else:
            raise AssertionError(f"{request} starves: {request.preemptions} preemptions")
    assert max(waits) < 1000
