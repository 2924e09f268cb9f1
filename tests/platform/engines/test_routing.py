"""Conversations keep to one engine, and only those of an engine that leaves are moved."""

from collections import Counter

import pytest

from pagoda.engines import connections, reports, routing
from pagoda_inference.client import EngineUnavailable

LINEAGES = [f"conversation-{number}" for number in range(600)]


@pytest.fixture(autouse=True)
def engines(settings, home):
    settings.PAGODA_ENGINES = ["one:1", "two:2", "three:3"]
    yield settings.PAGODA_ENGINES
    reports.forget_all()


def test_every_engine_gets_its_share():
    counts = Counter(connections.engine_for(lineage) for lineage in LINEAGES)
    assert len(counts) == 3
    assert min(counts.values()) > 150


def test_the_order_of_the_setting_does_not_matter(settings):
    before = [routing.engine_for(lineage) for lineage in LINEAGES]
    settings.PAGODA_ENGINES = settings.PAGODA_ENGINES[::-1]
    assert [routing.engine_for(lineage) for lineage in LINEAGES] == before


def test_only_the_conversations_of_an_engine_that_leaves_are_moved(settings):
    before = {lineage: routing.engine_for(lineage) for lineage in LINEAGES}
    settings.PAGODA_ENGINES = ["one:1", "three:3"]
    after = {lineage: routing.engine_for(lineage) for lineage in LINEAGES}
    assert all(after[lineage] == engine for lineage, engine in before.items() if engine != "two:2")


def test_an_engine_out_of_reach_is_passed_over_until_it_returns(engines):
    lineage = LINEAGES[0]
    best, second, _ = routing.ranked(lineage)
    for address in engines:
        reports.mark_reachable(address)
    assert routing.engine_for(lineage) == best
    reports.mark_unreachable(best)
    assert routing.engine_for(lineage) == second
    reports.mark_reachable(best)
    assert routing.engine_for(lineage) == best


def test_without_any_engine_in_reach_the_best_is_named():
    assert routing.engine_for(LINEAGES[0]) == routing.ranked(LINEAGES[0])[0]
    assert connections.default_model() is None


async def test_an_engine_that_was_taken_out_of_the_settings_is_unavailable():
    with pytest.raises(EngineUnavailable, match="PAGODA_ENGINES"):
        await connections.get_client("four:4")
