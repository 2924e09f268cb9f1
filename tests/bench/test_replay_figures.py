"""The figures of a replay are those of its requests, tenant by tenant."""

from __future__ import annotations

from typing import Any

import pytest

from bench.replay.figures import add_figures, jain, served_until, tenants_of
from bench.replay.record import Record
from bench.results import Results
from tests.bench.replaying import record


def figures(records: list[Record]) -> dict[str, Any]:
    results = Results("replay")
    add_figures(results, records)
    return {result["name"].removeprefix("replay."): result["value"] for result in results.results}


def test_percentiles_are_those_of_the_answers() -> None:
    records = [record("acme", 1.0, 1.0 + number / 100, 2.0 + number / 10) for number in range(1, 101)]
    found = figures([*records, record("rival", 1.0)])
    assert found["ttft_p50_s"] == pytest.approx(0.51)
    assert found["ttft_p90_s"] == pytest.approx(0.91)
    assert found["ttft_p95_s"] == pytest.approx(0.96)
    assert found["ttft_p99_s"] == pytest.approx(1.00)
    assert found["end_to_end_p50_s"] == pytest.approx(1 + 5.1)
    assert found["inter_token_p50_s"] == pytest.approx(1 + 0.09 * 51)
    assert found["normalized_latency_s"] == pytest.approx((1 + 5.05) / 10)
    assert found["late_p99_s"] == pytest.approx(0.01)
    assert found["errors"] == {"queue_full": 1}


def test_a_sender_that_was_late_misses_its_goal() -> None:
    results = Results("replay")
    records = [record("acme", 1.0, 2.0), record("rival", 1.0, 2.0)]
    records[1].due_s = 0.8
    add_figures(results, records)
    found = {result["name"]: result.get("ok") for result in results.results}
    assert found["replay.late_p99_s"] is False
    records[1].due_s = 0.95
    again = Results("replay")
    add_figures(again, records)
    assert {result["name"]: result.get("ok") for result in again.results}["replay.late_p99_s"] is True


def test_the_hit_ratio_is_of_prompt_tokens_and_service_leaves_cached_ones_out() -> None:
    records = [
        record("acme", 0.0, 1.0, 2.0, prompt=300, cached_tokens=150),
        record("rival", 0.0, 1.0, 2.0, prompt=100),
        record("rival", 0.0, prompt=5000),
    ]
    found = figures(records)
    assert found["hit_ratio"] == pytest.approx(150 / 400)
    acme, rival = found["tenants"]
    assert (acme.service, rival.service) == (150 + 20, 100 + 20)
    assert (rival.asked, rival.answered) == (2, 1)
    assert found["jain_service"] == pytest.approx((170 + 120) ** 2 / (2 * (170**2 + 120**2)))


def test_the_served_share_is_what_came_until_the_last_arrival() -> None:
    records = [
        record("acme", 0.01, 1.0, 3.0, 5.0, 7.0, prompt=60, output=20),
        record("rival", 4.01, 4.5, 5.0, prompt=60, output=20),
    ]
    acme, rival = tenants_of(records)
    assert acme.served_share == pytest.approx((60 + 2 * 20 * 2 / 4) / (60 + 40))
    assert rival.served_share == 0
    assert served_until(records[0], 0.5) == 0
    assert served_until(records[0], 7.0) == 100


def test_jains_index_is_1_for_equals_and_1_of_n_where_one_has_everything() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([5, 0, 0, 0]) == pytest.approx(1 / 4)


def test_nothing_is_said_of_fairness_where_nobody_got_anything() -> None:
    found = figures([record("acme", 1.0), record("rival", 2.0)])
    assert found["requests"]["failed"] == 2
    assert not {"jain_service", "jain_served_share"} & set(found)


def test_requests_that_all_arrive_at_once_have_latencies_and_no_rate() -> None:
    records = [record(tenant, 0.01, 0.5, 1.0) for tenant in ("acme", "rival")]
    found = figures(records)
    assert [tenant.served_share for tenant in found["tenants"]] == [None, None]
    assert found["seconds"] == 1.0
    assert found["jain_service"] == pytest.approx(1)
    assert not {"offered_req_s", "jain_served_share"} & set(found)
