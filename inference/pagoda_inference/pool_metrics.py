"""What the pool reports, as Prometheus metrics: read from the engine at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pagoda_inference.engine import Engine
from pagoda_inference.kv.prefix_index import PUBLIC
from pagoda_inference.protocol import AccountReport, PoolReport

MAX_TENANTS = 100
"""Tenants with a label of their own; the others share the label ``other``, so that tenants cannot flood a monitoring
system."""
MAX_TAKERS = 10
"""The same of those for whom blocks were evicted: this label multiplies with the tenant's."""
OTHER = "other"
REPORT_TIMEOUT_S = 5.0

Members = list[tuple[str, list[AccountReport]]]
"""Label and the accounts that share it."""


class PoolCollector:
    """Asks the engine for a report at every scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tenants = Labels(MAX_TENANTS)
        self._takers = Labels(MAX_TAKERS)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        report = self._engine.report().result(REPORT_TIMEOUT_S)
        yield from _pool(report)
        yield from self._step_limits()
        held = {account.id: (account.active + account.cached, _work(account)) for account in report.accounts}
        label = self._tenants.choose(held, {account.id for account in report.accounts if _work(account)})
        tenants: dict[str, list[AccountReport]] = {}
        for account in report.accounts:
            tenants.setdefault(label(account.id), []).append(account)
        yield from _by_tenant(list(tenants.items()), report)
        yield self._evictions_by(list(tenants.items()), report)

    def _step_limits(self) -> Iterator[Metric]:
        limits = self._engine.pace.current
        target = 0.0 if limits.target_s == inf else limits.target_s
        yield GaugeMetricFamily("pagoda_step_target_seconds", "Most that a step should take; 0: no matter.", target)
        costs = GaugeMetricFamily("pagoda_step_cost_seconds", "What a step takes, as it is now.", labels=["part"])
        for part, seconds in (("base", limits.base_s), ("row", limits.row_s), ("token", limits.token_s)):
            costs.add_metric([part], seconds)
        yield costs

    def _evictions_by(self, tenants: Members, report: PoolReport) -> Metric:
        """Whose blocks went for whom: for operators."""
        taken: dict[str, int] = {}
        for account in report.accounts:
            _add(taken, account.evicted_by)
        label = self._takers.choose({id: (count, 0) for id, count in taken.items()}, taken)
        metric = CounterMetricFamily(
            "pagoda_kv_evictions_by", "Cached KV blocks evicted, by whom.", labels=["tenant", "by"]
        )
        for tenant, members in tenants:
            takers: dict[str, int] = {}
            for member in members:
                for id, count in member.evicted_by.items():
                    _add(takers, {label(id): count})
            for by, count in sorted(takers.items()):
                metric.add_metric([tenant, by], count)
        return metric


class Labels:
    """Who has a label of its own where there are more than ``most``: once given, until it is gone.

    A counter must not jump because somebody else became larger, so a label once given to one who has counted anything
    stays. Those who have not may lose theirs.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: set[str] = set()

    def choose(self, sizes: Mapping[str, tuple[int, int]], counted: Iterable[str]) -> Callable[[str], str]:
        """The label of each of ``sizes``: the largest come first. ``counted``: those with counters above 0."""
        ranked = sorted(sizes, key=lambda id: (id in self._kept, sizes[id]), reverse=True)
        chosen = set(ranked[: self._most])
        self._kept = chosen & set(counted)
        return lambda id: id if id in chosen else OTHER


def _work(account: AccountReport) -> int:
    return account.tokens_in + account.tokens_out + account.hit_tokens


def _pool(report: PoolReport) -> Iterator[Metric]:
    yield GaugeMetricFamily("pagoda_kv_blocks_free", "Free KV blocks.", value=report.free)
    yield GaugeMetricFamily("pagoda_kv_blocks_total", "KV blocks of the pool.", value=report.total)
    published = sum(account.active for account in report.accounts if account.id == PUBLIC)
    yield GaugeMetricFamily("pagoda_kv_blocks_published", "KV blocks of published prefixes.", value=published)
    scaled = "What reservations are multiplied with because the pool shrank."
    yield GaugeMetricFamily("pagoda_reservations_scale_ratio", scaled, value=report.scaled)
    yield GaugeMetricFamily("pagoda_alerts", "Sentences that an operator should read.", value=len(report.alerts))
    capacity = GaugeMetricFamily("pagoda_tier_capacity_bytes", "Size of a tier.", labels=["tier"])
    for tier, size in report.tier_totals.items():
        capacity.add_metric([tier], size)
    yield capacity
    for name, help, event in _TIER_EVENTS:
        counter = CounterMetricFamily(name, help, labels=["tier"])
        for tier, events in report.tier_events.items():
            counter.add_metric([tier], events[event])
        yield counter


def _by_tenant(tenants: Members, report: PoolReport) -> Iterator[Metric]:
    for name, help, value in _GAUGES:
        gauge = GaugeMetricFamily(name, help, labels=["tenant"])
        for label, members in tenants:
            gauge.add_metric([label], sum(value(member, report) for member in members))
        yield gauge
    for name, help, count in _COUNTERS:
        counter = CounterMetricFamily(name, help, labels=["tenant"])
        for label, members in tenants:
            counter.add_metric([label], sum(count(member) for member in members))
        yield counter
    for family, name, help, key, counts in _BY_KIND:
        metric = family(name, help, labels=["tenant", key])
        for label, members in tenants:
            total: dict[str, int] = {}
            for member in members:
                _add(total, counts(member))
            for kind, number in sorted(total.items()):
                metric.add_metric([label, kind], number)
        yield metric


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for key, number in more.items():
        total[key] = total.get(key, 0) + number


_TIER_EVENTS = (
    ("pagoda_tier_stored_blocks", "Blocks copied into a tier.", "stored"),
    ("pagoda_tier_loaded_blocks", "Blocks copied from a tier into the pool.", "loaded"),
    ("pagoda_tier_dropped_blocks", "Blocks that a tier gave up and no other keeps.", "dropped"),
    ("pagoda_tier_failures", "Copies to or from a tier that went wrong.", "failed"),
)

_Gauge = Callable[[AccountReport, PoolReport], float]
_Count = Callable[[AccountReport], float]
_Counts = Callable[[AccountReport], dict[str, int]]

_GAUGES: tuple[tuple[str, str, _Gauge], ...] = (
    ("pagoda_num_requests_running", "Requests that take part in steps.", lambda a, _: a.running),
    ("pagoda_num_requests_waiting", "Requests that wait for admission.", lambda a, _: a.waiting),
    ("pagoda_kv_blocks_active", "KV blocks of running requests.", lambda a, _: a.active),
    ("pagoda_kv_blocks_cached", "KV blocks kept for whoever comes back.", lambda a, _: a.cached),
    ("pagoda_kv_blocks_shared", "Active KV blocks with more than one holder.", lambda a, _: a.shared),
    ("pagoda_kv_blocks_reserved", "KV blocks guaranteed.", lambda a, _: a.reservation),
    ("pagoda_kv_blocks_reserved_unused", "Guaranteed KV blocks not held.", lambda a, _: a.reserved_unused),
    ("pagoda_kv_blocks_limit", "KV blocks never exceeded.", lambda a, _: a.limit),
    (
        "pagoda_kv_cache_usage_ratio",
        "Active KV blocks by those of the pool.",
        lambda a, report: a.active / report.total,
    ),
)
_COUNTERS: tuple[tuple[str, str, _Count], ...] = (
    ("pagoda_prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", lambda a: a.queried_tokens),
    ("pagoda_prefix_cache_hits", "Prompt tokens found there.", lambda a: a.hit_tokens),
    ("pagoda_prompt_tokens", "Prompt tokens computed.", lambda a: a.tokens_in),
    ("pagoda_generation_tokens", "Tokens generated.", lambda a: a.tokens_out),
    ("pagoda_queue_wait_seconds", "Time that requests waited for admission.", lambda a: a.queue_wait_s),
)
_BY_KIND: tuple[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, str, _Counts], ...] = (
    (CounterMetricFamily, "pagoda_kv_evictions", "Cached KV blocks evicted.", "cause", lambda a: a.evictions),
    (CounterMetricFamily, "pagoda_num_preemptions", "Requests preempted.", "kind", lambda a: a.preemptions),
    (GaugeMetricFamily, "pagoda_tier_bytes", "Bytes kept in a tier.", "tier", lambda a: a.tier_bytes),
    (GaugeMetricFamily, "pagoda_tier_limit_bytes", "Most bytes kept in a tier.", "tier", lambda a: a.tier_limits),
    (CounterMetricFamily, "pagoda_kv_demotions", "KV blocks copied down to a tier.", "tier", lambda a: a.demoted),
    (CounterMetricFamily, "pagoda_kv_promotions", "KV blocks brought back from a tier.", "tier", lambda a: a.promoted),
)
