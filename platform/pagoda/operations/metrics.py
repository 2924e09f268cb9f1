"""The pool as Prometheus metrics, beside those of django-prometheus. docs/operations.md lists every one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.conf import settings
from django.db import DatabaseError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pagoda.engines import reports
from pagoda.tenants.models import Tenant
from pagoda_inference.protocol import AccountReport, PoolReport

ENGINE = ("engine",)
TENANT = ("engine", "tenant")

ACCOUNT_GAUGES = {
    "active": ("pagoda_account_active_blocks", "KV blocks that running sequences of the tenant refer to"),
    "cached": ("pagoda_account_cached_blocks", "KV blocks of the tenant that are cached and can be evicted"),
    "shared": ("pagoda_account_shared_blocks", "KV blocks of the tenant that more than one sequence refers to"),
    "reservation": ("pagoda_account_reserved_blocks", "KV blocks that the tenant can always have"),
    "limit": ("pagoda_account_limit_blocks", "KV blocks that the tenant never exceeds"),
    "running": ("pagoda_account_running_sequences", "Sequences of the tenant in the present step"),
    "waiting": ("pagoda_account_waiting_sequences", "Sequences of the tenant that wait for admission"),
}
ACCOUNT_COUNTERS = {
    "hit_tokens": ("pagoda_account_prefix_hit_tokens", "Prompt tokens of the tenant whose KV was found in its cache"),
    "queried_tokens": ("pagoda_account_prefix_queried_tokens", "Prompt tokens of the tenant looked up in its cache"),
    "tokens_in": ("pagoda_account_prompt_tokens", "Prompt tokens that the engine took in for the tenant"),
    "tokens_out": ("pagoda_account_output_tokens", "Tokens that the engine produced for the tenant"),
    "queue_wait_s": ("pagoda_account_queue_wait_seconds", "Time that requests of the tenant waited for admission"),
}


class PoolCollector(Collector):
    """Reads this process's last report of every engine whenever the metrics are asked for."""

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time: registering must not query the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        seen = {address: report for address in settings.PAGODA_ENGINES if (report := reports.latest(address))}
        yield _engines()
        yield from _pools(seen)
        yield from _accounts(seen, _slugs() if seen else {})


def _slugs() -> dict[str, str]:
    """Account -> the tenant's short name. Without the database the accounts keep their ids."""
    try:
        return {tenant.account: tenant.slug for tenant in Tenant.objects.only("id", "slug")}
    except DatabaseError:
        return {}


def _engines() -> Metric:
    family = GaugeMetricFamily("pagoda_engine_reachable", "1 while this process reaches the engine", labels=ENGINE)
    for address in settings.PAGODA_ENGINES:
        family.add_metric([address], float(reports.is_reachable(address)))
    return family


def _pools(seen: dict[str, PoolReport]) -> Iterator[Metric]:
    total = GaugeMetricFamily("pagoda_pool_blocks", "KV blocks of the engine's pool", labels=ENGINE)
    free = GaugeMetricFamily("pagoda_pool_free_blocks", "KV blocks neither active nor cached", labels=ENGINE)
    size = GaugeMetricFamily("pagoda_pool_block_bytes", "Bytes of one KV block over all layers", labels=ENGINE)
    steps = CounterMetricFamily("pagoda_engine_steps", "Model steps since the engine started", labels=ENGINE)
    for address, report in seen.items():
        total.add_metric([address], report.total)
        free.add_metric([address], report.free)
        size.add_metric([address], report.bytes_per_block)
        steps.add_metric([address], report.step)
    yield from (total, free, size, steps)


def _accounts(seen: dict[str, PoolReport], slugs: dict[str, str]) -> Iterator[Metric]:
    rows: list[tuple[list[str], AccountReport]] = [
        ([address, slugs.get(account.id, account.id)], account)
        for address, report in seen.items()
        for account in report.accounts
    ]
    for field, (name, text) in ACCOUNT_GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=TENANT)
        for labels, account in rows:
            gauge.add_metric(labels, getattr(account, field))
        yield gauge
    for field, (name, text) in ACCOUNT_COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=TENANT)
        for labels, account in rows:
            counter.add_metric(labels, getattr(account, field))
        yield counter
    evictions = CounterMetricFamily(
        "pagoda_account_evictions", "Cached KV blocks taken from the tenant, by cause", labels=(*TENANT, "cause")
    )
    preemptions = CounterMetricFamily(
        "pagoda_account_preemptions",
        "Sequences of the tenant that lost blocks, by kind",
        labels=(*TENANT, "kind"),
    )
    for labels, account in rows:
        for cause, count in account.evictions.items():
            evictions.add_metric([*labels, cause], count)
        for kind, count in account.preemptions.items():
            preemptions.add_metric([*labels, kind], count)
    yield from (evictions, preemptions)
