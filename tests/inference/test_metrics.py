"""Prometheus metrics: served, right, and bounded in labels."""

from __future__ import annotations

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from pagoda_inference.metrics import MAX_ACCOUNTS
from pagoda_inference.protocol import Account, SetAccounts
from tests.inference.running_engine import RunningEngine, Tenant
from tests.inference.test_exposure import free_port


async def with_metrics(start_engine) -> tuple[RunningEngine, Tenant, Tenant]:
    engine = await start_engine(metrics_address=f"127.0.0.1:{free_port()}")
    return engine, Tenant("acme", await engine.client()), Tenant("rival", await engine.client())


async def scrape(engine: RunningEngine):
    def get() -> str:
        with urllib.request.urlopen(f"http://{engine.settings.metrics_address}/metrics", timeout=5) as answer:
            return answer.read().decode()

    return list(text_string_to_metric_families(await asyncio.to_thread(get)))


def samples(families) -> dict[tuple[str, ...], float]:
    """(name, label values…) -> value."""
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


async def test_metrics_say_what_happened_per_account(start_engine):
    engine, acme, rival = await with_metrics(start_engine)
    for _ in range(2):
        await acme.answer("x" * 33, max_tokens=4, ignore_eos=True)
    await rival.answer("y", max_tokens=3, ignore_eos=True)
    found = samples(await scrape(engine))
    assert found["pagoda_generation_tokens_total", "acme"] == 8
    assert found["pagoda_generation_tokens_total", "rival"] == 3
    assert found["pagoda_prefix_cache_hits_total", "acme"] == 32
    assert found["pagoda_prefix_cache_queries_total", "acme"] == 66
    assert found["pagoda_prefix_cache_hits_total", "rival"] == 0
    assert found["pagoda_request_finished_total", "length"] == 3
    assert found["pagoda_time_to_first_token_seconds_count",] == 3
    assert found["pagoda_connections",] == 2
    assert found["pagoda_generation_log_bytes",] > 0
    held = found["pagoda_kv_blocks_cached", "acme"] + found["pagoda_kv_blocks_cached", "rival"]
    assert found["pagoda_kv_blocks_free",] + held == found["pagoda_kv_blocks_total",]


async def test_the_smaller_accounts_share_a_label(start_engine):
    engine, acme, _ = await with_metrics(start_engine)
    accounts = tuple(Account(f"tenant-{number}") for number in range(MAX_ACCOUNTS + 50))
    await acme.client.set_accounts(SetAccounts(1, (Account("acme"), *accounts)))
    await acme.answer("x" * 40, max_tokens=4)
    waiting = [key for key in samples(await scrape(engine)) if key[0] == "pagoda_num_requests_waiting"]
    assert len(waiting) == MAX_ACCOUNTS + 1
    assert {("pagoda_num_requests_waiting", "acme"), ("pagoda_num_requests_waiting", "other")} <= set(waiting)
