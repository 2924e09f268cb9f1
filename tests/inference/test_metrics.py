"""Prometheus metrics: served, right, and bounded in labels."""

from __future__ import annotations

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from pagoda_inference.pool_metrics import MAX_TENANTS, Labels
from pagoda_inference.protocol import Account, AccountReport, PoolReport, Prefix, Publish, SetAccounts
from tests.inference.running_engine import RunningEngine, Tenant
from tests.inference.test_exposure import free_port

GIB = 1 << 30
BLOCK = 16


async def with_metrics(start_engine, **settings) -> tuple[RunningEngine, Tenant, Tenant]:
    engine = await start_engine(metrics_address=f"127.0.0.1:{free_port()}", **settings)
    return engine, Tenant("acme", await engine.client()), Tenant("rival", await engine.client())


async def scrape(engine: RunningEngine):
    def get() -> str:
        with urllib.request.urlopen(f"http://{engine.settings.metrics_address}/metrics", timeout=60) as answer:
            return answer.read().decode()

    return list(text_string_to_metric_families(await asyncio.to_thread(get)))


def samples(families) -> dict[tuple[str, ...], float]:
    """(name, label values…, the tenant's first) -> value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items(), key=lambda label: label[0] != "tenant"))): (
            sample.value
        )
        for family in families
        for sample in family.samples
    }


async def scrape_at_rest(engine: RunningEngine) -> tuple[dict[tuple[str, ...], float], PoolReport]:
    """Samples and report of one moment: copies to the tiers go on behind the last answer."""
    while True:
        before = await engine.report()
        found = samples(await scrape(engine))
        report = await engine.report()
        if before.accounts == report.accounts:
            return found, report


async def test_metrics_say_what_happened_per_tenant(start_engine):
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


async def worked_pool(start_engine) -> tuple[RunningEngine, Tenant]:
    """A pool of 24 blocks with tiers below it, after two tenants have had more KV than it holds."""
    engine, acme, rival = await with_metrics(
        start_engine, pool_tokens=24 * BLOCK, host_gib=1.0, disk_gib=1.0, preemption="swap"
    )
    accounts = (Account("acme", reservation=8, host_bytes=GIB >> 1), Account("rival", weight=2.0))
    await acme.client.set_accounts(SetAccounts(1, accounts))
    await acme.client.publish(Publish(1, (Prefix("house", token_ids=tuple(range(2 * BLOCK))),)))
    for round in range(3):
        for tenant in (acme, rival):
            for letter in "abcd":
                await tenant.answer(letter * 5 * BLOCK + str(round), max_tokens=4, ignore_eos=True)
    return engine, acme


async def test_metrics_say_what_the_pool_reports_and_add_up(start_engine):
    engine, _ = await worked_pool(start_engine)
    found, report = await scrape_at_rest(engine)
    assert {account.id for account in report.accounts} == {"acme", "rival", "public"}
    for account in report.accounts:
        for name, value in expected(account, report).items():
            assert found[name, account.id] == value, name
        for name, kinds in expected_by_kind(account).items():
            assert {key[2]: count for key, count in found.items() if key[:2] == (name, account.id)} == kinds, name
    held = sum(
        found[name, account.id]
        for name in ("pagoda_kv_blocks_active", "pagoda_kv_blocks_cached")
        for account in report.accounts
    )
    assert found["pagoda_kv_blocks_free",] + held == found["pagoda_kv_blocks_total",] == report.total == 24
    assert found["pagoda_kv_blocks_published",] == 2
    assert found["pagoda_reservations_scale_ratio",] == 1
    assert found["pagoda_alerts",] == 0


async def test_what_was_evicted_is_counted_by_cause_and_by_whom(start_engine):
    engine, _ = await worked_pool(start_engine)
    found, report = await scrape_at_rest(engine)
    evicted = sum(count for account in report.accounts for count in account.evictions.values())
    assert evicted > 0
    for name in ("pagoda_kv_evictions_total", "pagoda_kv_evictions_by_total"):
        assert sum(count for key, count in found.items() if key[0] == name) == evicted, name


async def test_tiers_say_what_they_hold_and_what_went_through_them(start_engine):
    engine, acme = await worked_pool(start_engine)
    found, report = await scrape_at_rest(engine)
    assert report.tier_totals["host"] == report.tier_totals["disk"] == GIB
    for tier, size in report.tier_totals.items():
        assert found["pagoda_tier_capacity_bytes", tier] == size
        for event in ("stored_blocks", "loaded_blocks", "dropped_blocks", "failures"):
            assert f"pagoda_tier_{event}_total" in {key[0] for key in found if key[1:] == (tier,)}
        assert found["pagoda_tier_failures_total", tier] == 0
    assert found["pagoda_tier_limit_bytes", "acme", "host"] == GIB >> 1
    assert found["pagoda_tier_limit_bytes", "rival", "host"] == GIB
    demoted = sum(count for key, count in found.items() if key[0] == "pagoda_kv_demotions_total" and key[2] == "host")
    promoted = sum(count for key, count in found.items() if key[0] == "pagoda_kv_promotions_total")
    stored = sum(count for key, count in found.items() if key[0] == "pagoda_tier_stored_blocks_total")
    loaded = sum(count for key, count in found.items() if key[0] == "pagoda_tier_loaded_blocks_total")
    assert stored >= demoted > 0
    assert loaded == promoted > 0
    used = sum(count for key, count in found.items() if key[0] == "pagoda_tier_bytes")
    assert used == sum(sum(account.tier_bytes.values()) for account in report.accounts) > 0
    await acme.client.set_accounts(SetAccounts(2, (Account("rival"),)))
    assert not [key for key in samples(await scrape(engine)) if key[1:2] == ("acme",)], "a deleted tenant is gone"


def expected(account: AccountReport, report: PoolReport) -> dict[str, float]:
    return {
        "pagoda_num_requests_running": account.running,
        "pagoda_num_requests_waiting": account.waiting,
        "pagoda_kv_blocks_active": account.active,
        "pagoda_kv_blocks_cached": account.cached,
        "pagoda_kv_blocks_shared": account.shared,
        "pagoda_kv_blocks_reserved": account.reservation,
        "pagoda_kv_blocks_reserved_unused": account.reserved_unused,
        "pagoda_kv_blocks_limit": account.limit,
        "pagoda_kv_cache_usage_ratio": account.active / report.total,
        "pagoda_prefix_cache_queries_total": account.queried_tokens,
        "pagoda_prefix_cache_hits_total": account.hit_tokens,
        "pagoda_prompt_tokens_total": account.tokens_in,
        "pagoda_generation_tokens_total": account.tokens_out,
        "pagoda_queue_wait_seconds_total": account.queue_wait_s,
    }


def expected_by_kind(account: AccountReport) -> dict[str, dict[str, int]]:
    return {
        "pagoda_kv_evictions_total": account.evictions,
        "pagoda_kv_evictions_by_total": account.evicted_by,
        "pagoda_num_preemptions_total": account.preemptions,
        "pagoda_tier_limit_bytes": account.tier_limits,
        "pagoda_kv_promotions_total": account.promoted,
    }


async def test_reservations_that_were_scaled_down_are_a_number_and_an_alert(start_engine):
    engine, acme, _ = await with_metrics(start_engine)
    accounts = (Account("acme", reservation=256), Account("rival", reservation=256))
    await acme.client.set_accounts(SetAccounts(1, accounts, pool_blocks=512))
    found = samples(await scrape(engine))
    assert found["pagoda_reservations_scale_ratio",] == 0.5
    assert found["pagoda_alerts",] == 1
    assert found["pagoda_kv_blocks_reserved", "acme"] == found["pagoda_kv_blocks_reserved", "rival"] == 128


async def test_the_target_of_a_step_and_what_was_learnt_of_its_cost(start_engine):
    engine, acme, _ = await with_metrics(start_engine, step_target_ms=50, step_ms=2)
    await acme.answer("x" * 100, max_tokens=20, ignore_eos=True)
    found = samples(await scrape(engine))
    assert found["pagoda_step_target_seconds",] == 0.05
    assert sum(found["pagoda_step_cost_seconds", part] for part in ("base", "row", "token")) > 0
    assert found["pagoda_engine_paused_steps_total",] == 0


async def test_the_smaller_tenants_share_a_label(start_engine):
    engine, acme, _ = await with_metrics(start_engine)
    accounts = tuple(Account(f"tenant-{number}") for number in range(MAX_TENANTS + 50))
    await acme.client.set_accounts(SetAccounts(1, (Account("acme"), *accounts)))
    await scrape(engine)
    await acme.answer("x" * 40, max_tokens=4)
    waiting = [key for key in samples(await scrape(engine)) if key[0] == "pagoda_num_requests_waiting"]
    assert len(waiting) == MAX_TENANTS + 1
    assert {("pagoda_num_requests_waiting", "acme"), ("pagoda_num_requests_waiting", "other")} <= set(waiting)


def test_a_label_stays_with_who_has_counted_something():
    labels = Labels(2)
    label = labels.choose({"acme": (1, 0), "rival": (9, 0), "idle": (0, 0)}, {"acme", "rival"})
    assert [label(id) for id in ("acme", "rival", "idle")] == ["acme", "rival", "other"]
    label = labels.choose({"acme": (1, 0), "rival": (9, 0), "idle": (99, 0)}, {"acme", "rival", "idle"})
    assert label("acme") == "acme"
    assert label("idle") == "other"
    label = labels.choose({"acme": (1, 0), "idle": (99, 0)}, {"acme", "idle"})
    assert label("idle") == "idle", "a tenant is gone: its place is free"
