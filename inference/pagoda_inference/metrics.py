"""Prometheus metrics, named as vLLM names its own where both have them, under the prefix ``pagoda_``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pagoda_inference.address import Address
from pagoda_inference.engine import Engine
from pagoda_inference.generation_store import GenerationStore
from pagoda_inference.listening import AddressTaken
from pagoda_inference.protocol import AccountReport, Finished
from pagoda_inference.server import Server

MAX_ACCOUNTS = 100
"""Accounts with a label of their own; the smaller ones share the label ``other``, so that tenants cannot flood a
monitoring system."""
REPORT_TIMEOUT_S = 5.0

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_STEP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Metrics:
    """One engine's metrics. ``step`` and ``finished`` are called by the engine, the rest is read at a scrape."""

    def __init__(self) -> None:
        disable_created_metrics()  # a second series for each, that nobody reads
        self.registry = CollectorRegistry()
        registry = self.registry
        self._step_seconds = Histogram(
            "pagoda_engine_step_seconds", "Duration of a step.", buckets=_STEP_SECONDS, registry=registry
        )
        self._step_tokens = Histogram(
            "pagoda_engine_step_tokens", "Tokens computed in a step.", buckets=_TOKENS, registry=registry
        )
        self._queue_seconds = Histogram(
            "pagoda_request_queue_time_seconds", "From arrival to admission.", buckets=_SECONDS, registry=registry
        )
        self._first_token_seconds = Histogram(
            "pagoda_time_to_first_token_seconds",
            "From arrival to the first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._per_token_seconds = Histogram(
            "pagoda_time_per_output_token_seconds",
            "Mean time between the output tokens of a request.",
            buckets=_STEP_SECONDS,
            registry=registry,
        )
        self._request_seconds = Histogram(
            "pagoda_e2e_request_latency_seconds", "From arrival to the end.", buckets=_SECONDS, registry=registry
        )
        self._finished = Counter(
            "pagoda_request_finished", "Requests that ended.", ["finished_reason"], registry=registry
        )

    def step(self, seconds: float, chunks: int, tokens: int) -> None:
        """A step has run."""
        self._step_seconds.observe(seconds)
        self._step_tokens.observe(tokens)

    def finished(self, event: Finished) -> None:
        """A generation has ended."""
        usage = event.usage
        self._finished.labels(event.reason).inc()
        self._queue_seconds.observe(usage.queued_s)
        self._request_seconds.observe(usage.queued_s + usage.prefill_s + usage.decode_s)
        if usage.output_tokens:
            self._first_token_seconds.observe(usage.queued_s + usage.prefill_s)
        if usage.output_tokens > 1:
            self._per_token_seconds.observe(usage.decode_s / (usage.output_tokens - 1))

    def read_from(self, engine: Engine, store: GenerationStore, server: Server) -> None:
        """Add what is read at a scrape: pool, accounts, generation logs, connections."""
        self.registry.register(_PoolCollector(engine))
        self.registry.register(_WireCollector(store, server))

    def listen(self, address: str) -> None:
        """Serve ``/metrics`` on ``host:port`` in a thread. Raises AddressTaken."""
        parsed = Address.parse(address)
        try:
            start_http_server(parsed.port, parsed.host, self.registry)
        except OSError as error:
            raise AddressTaken(f"metrics cannot be served on {address}: {error.strerror}") from None


class _PoolCollector:
    """Asks the engine for a report at every scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        report = self._engine.report().result(REPORT_TIMEOUT_S)
        yield GaugeMetricFamily("pagoda_kv_blocks_free", "Free KV blocks.", value=report.free)
        yield GaugeMetricFamily("pagoda_kv_blocks_total", "KV blocks of the pool.", value=report.total)
        accounts = _bounded(report.accounts)
        for name, help, value in _ACCOUNT_GAUGES:
            gauge = GaugeMetricFamily(name, help, labels=["account"])
            for label, members in accounts:
                gauge.add_metric([label], sum(value(member, report) for member in members))
            yield gauge
        for name, help, count in _ACCOUNT_COUNTERS:
            counter = CounterMetricFamily(name, help, labels=["account"])
            for label, members in accounts:
                counter.add_metric([label], sum(count(member) for member in members))
            yield counter
        for name, help, key, counts in _ACCOUNT_COUNTERS_BY:
            counter = CounterMetricFamily(name, help, labels=["account", key])
            for label, members in accounts:
                for kind in sorted({kind for member in members for kind in counts(member)}):
                    counter.add_metric([label, kind], sum(counts(member).get(kind, 0) for member in members))
            yield counter


class _WireCollector:
    """Generation logs and connections."""

    def __init__(self, store: GenerationStore, server: Server) -> None:
        self._store = store
        self._server = server

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        store = self._store
        yield GaugeMetricFamily("pagoda_connections", "Streams that are open.", value=self._server.connections)
        yield GaugeMetricFamily("pagoda_generation_log_bytes", "Bytes of unacknowledged events.", value=store.bytes)
        dropped = "Generations whose events were dropped for bytes, unacknowledged."
        yield CounterMetricFamily("pagoda_generation_logs_dropped", dropped, value=store.dropped)
        expired = "Generations that nobody acknowledged in time."
        yield CounterMetricFamily("pagoda_generation_logs_expired", expired, value=store.expired)


_ACCOUNT_GAUGES = (
    ("pagoda_num_requests_running", "Requests that take part in steps.", lambda a, report: a.running),
    ("pagoda_num_requests_waiting", "Requests that wait for admission.", lambda a, report: a.waiting),
    ("pagoda_kv_blocks_active", "KV blocks of running requests.", lambda a, report: a.active),
    ("pagoda_kv_blocks_cached", "KV blocks kept for whoever comes back.", lambda a, report: a.cached),
    ("pagoda_kv_blocks_reserved", "KV blocks guaranteed.", lambda a, report: a.reservation),
    (
        "pagoda_kv_cache_usage_ratio",
        "Active KV blocks by those of the pool.",
        lambda a, report: a.active / report.total,
    ),
)
_ACCOUNT_COUNTERS = (
    ("pagoda_prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", lambda a: a.queried_tokens),
    ("pagoda_prefix_cache_hits", "Prompt tokens found there.", lambda a: a.hit_tokens),
    ("pagoda_prompt_tokens", "Prompt tokens computed.", lambda a: a.tokens_in),
    ("pagoda_generation_tokens", "Tokens generated.", lambda a: a.tokens_out),
    ("pagoda_queue_wait_seconds", "Time that requests waited for admission.", lambda a: a.queue_wait_s),
)
_ACCOUNT_COUNTERS_BY = (
    ("pagoda_kv_evictions", "Cached KV blocks evicted.", "cause", lambda a: a.evictions),
    ("pagoda_num_preemptions", "Requests preempted.", "kind", lambda a: a.preemptions),
)


def _bounded(accounts: Iterable[AccountReport]) -> list[tuple[str, list[AccountReport]]]:
    """Label and members: the accounts that hold and did most one by one, all others together."""
    ranked = sorted(accounts, key=lambda a: (a.active + a.cached, a.tokens_in + a.tokens_out), reverse=True)
    labelled = [(account.id, [account]) for account in ranked[:MAX_ACCOUNTS]]
    return [*labelled, ("other", ranked[MAX_ACCOUNTS:])] if len(ranked) > MAX_ACCOUNTS else labelled
