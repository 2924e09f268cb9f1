"""Tenants in virtual time: quotas and fairness do what they say on a trace with a flood in it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.figures import tenancy
from bench.figures.figure import Sample
from bench.simulation.demand import Demand
from bench.traces.request import TracedRequest

SAMPLE = Sample(requests=300, warm_up=60, workers=1)


@pytest.fixture(scope="module")
def demand() -> Demand:
    """Two clients that flood, and eight that ask now and then."""
    rng = random.Random(5)
    names = [f"flood-{number}" for number in range(2)] * 8 + [f"quiet-{number}" for number in range(8)]
    trace = [
        TracedRequest(0.2 * number, rng.randint(100, 400), rng.randint(100, 400), client=rng.choice(names))
        for number in range(300)
    ]
    return Demand.of(trace, 2048, 1)


def test_the_heavy_clients_are_the_fewest_that_ask_for_half(demand: Demand) -> None:
    assert tenancy.heavy_clients(demand) == {"flood-0", "flood-1"}


def test_quotas_are_within_the_pool_and_for_the_right_clients(demand: Demand) -> None:
    limits = {account.id: account for account in tenancy.accounts("limits", demand, 983)}
    assert {id for id, account in limits.items() if account.limit is not None} == {"flood-0", "flood-1"}
    kept = {account.id: account.reservation for account in tenancy.accounts("reservations", demand, 983)}
    assert sum(kept.values()) <= 0.25 * 983
    assert {id for id, reservation in kept.items() if reservation} == {f"quiet-{number}" for number in range(8)}
    assert not any(account.limit or account.reservation for account in tenancy.accounts("fair", demand, 983))


def test_quiet_clients_wait_less_where_there_are_tenants(demand: Demand) -> None:
    figure = tenancy.of_demand("flood", demand, SAMPLE)
    value = {number.name: number.value for number in figure.numbers}
    assert value["fair.light_ttft_p95"] < 0.3 * value["fcfs.light_ttft_p95"]
    assert value["fair.heavy_ttft_p95"] > value["fair.light_ttft_p95"]
    assert value["limits.light_ttft_p95"] <= value["fair.light_ttft_p95"] * 1.1
    assert value["limits.tokens"] < value["fair.tokens"]  # what the heavy ones may not hold is idle
    assert value["throughput_ratio"] > 0.85
    assert all(value[f"{policy}.refused"] == 0 for policy in tenancy.POLICIES)
    assert len(figure.plots) == 1


def test_without_traces_it_says_so() -> None:
    figures = tenancy.make(SAMPLE)
    assert [figure.key for figure in figures] == ["tenancy.arena", "tenancy.servegen"]
    assert all("--traces" in why for figure in figures for _, why in figure.skipped)
    assert not any(figure.numbers for figure in figures)


def test_a_folder_without_these_traces_is_said_too(tmp_path: Path) -> None:
    figures = tenancy.make(Sample(traces=tmp_path))
    assert all(len(figure.skipped) == 1 for figure in figures)
