"""Prometheus metrics, named as vLLM names its own where both have them, under the prefix ``pagoda_``."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pagoda_inference.address import Address
from pagoda_inference.engine import Engine
from pagoda_inference.generation_store import GenerationStore
from pagoda_inference.listening import AddressTaken
from pagoda_inference.pool_metrics import PoolCollector
from pagoda_inference.protocol import Finished
from pagoda_inference.scheduling.step import Step
from pagoda_inference.server import Server

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
        self._paused_steps = Counter(
            "pagoda_engine_paused_steps",
            "Steps in which a tenant far ahead of another was kept from decoding.",
            registry=registry,
        )
        self._drafted = Counter(
            "pagoda_spec_decode_num_draft_tokens", "Next tokens guessed and checked.", registry=registry
        )
        self._accepted = Counter(
            "pagoda_spec_decode_num_accepted_tokens", "Of them, those that were right.", registry=registry
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

    def step(self, step: Step, seconds: float) -> None:
        """A step has run."""
        self._step_seconds.observe(seconds)
        self._step_tokens.observe(sum(chunk.count for chunk in step.chunks) + step.drafted)
        self._drafted.inc(step.drafted)
        self._accepted.inc(step.accepted)
        if step.paused:
            self._paused_steps.inc()

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
        self.registry.register(PoolCollector(engine))
        self.registry.register(_WireCollector(store, server))

    def listen(self, address: str) -> None:
        """Serve ``/metrics`` on ``host:port`` in a thread. Raises AddressTaken."""
        parsed = Address.parse(address)
        try:
            start_http_server(parsed.port, parsed.host, self.registry)
        except OSError as error:
            raise AddressTaken(f"metrics cannot be served on {address}: {error.strerror}") from None


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
