"""The figures of a replay: latencies, cache hits, what each tenant got, errors, and how late the sender was."""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.replay.record import UNFINISHED, Record
from bench.results import Results, percentile

PERCENTILES = (50, 90, 95, 99)
OUTPUT_PRICE = 2
"""Of an output token, where a computed prompt token costs 1 and a cached one 0: as the engine counts service."""

SENDER_GOAL = "<=0.1"
"""Seconds that 99 % of requests may be late: what is more is the sender's fault or its machine's, not the server's."""


@dataclass(frozen=True)
class Tenant:
    """One tenant's part. service: computed prompt tokens and twice the output tokens of its answers. served_share: of
    the tokens asked for (prompt, and twice the output), what it got until the last arrival; None where nothing was
    asked for, or all arrived at once. Times are of answered requests; None without any."""

    name: str
    asked: int
    answered: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    service: int
    served_share: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    end_to_end_p50_s: float | None


def inter_token_s(record: Record) -> list[float]:
    """Gaps between pieces of an answer's text."""
    return [after - before for before, after in itertools.pairwise(record.text_s)]


def last_arrival_s(records: Sequence[Record]) -> float:
    return max((record.due_s for record in records), default=0.0)


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness (DEC-TR-301, 1984): 1 where all are equal, 1/n where one of n has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def tenants_of(records: Sequence[Record]) -> list[Tenant]:
    """In the order of their names."""
    until = last_arrival_s(records)
    names = sorted({record.tenant for record in records})
    return [_tenant(name, [each for each in records if each.tenant == name], until) for name in names]


def _tenant(name: str, records: Sequence[Record], until: float) -> Tenant:
    answered = [record for record in records if record.is_answered]
    ttfts = [record.ttft_s for record in answered]
    asked = sum(record.prompt_tokens + OUTPUT_PRICE * record.output_tokens for record in records)
    prompts = sum(record.prompt_tokens for record in answered)
    cached = sum(record.cached_tokens for record in answered)
    outputs = sum(record.written_tokens for record in answered)
    return Tenant(
        name=name,
        asked=len(records),
        answered=len(answered),
        prompt_tokens=prompts,
        cached_tokens=cached,
        output_tokens=outputs,
        service=prompts - cached + OUTPUT_PRICE * outputs,
        served_share=sum(served_until(record, until) for record in records) / asked if asked and until else None,
        ttft_p50_s=percentile(ttfts, 50) if ttfts else None,
        ttft_p95_s=percentile(ttfts, 95) if ttfts else None,
        end_to_end_p50_s=percentile([record.end_to_end_s for record in answered], 50) if answered else None,
    )


def served_until(record: Record, until_s: float) -> float:
    """Tokens by then, in the units of service: the prompt, cached or not, with the first text, and the output with its
    pieces. Of an answer that did not end, whose tokens nobody counted, the prompt alone."""
    pieces = bisect.bisect(record.text_s, until_s)
    written = record.written_tokens * pieces / len(record.text_s) if pieces else 0.0
    return record.prompt_tokens + OUTPUT_PRICE * written if pieces else 0.0


def due_of(records: Sequence[Record]) -> list[Record]:
    """Those that were due while the replay ran: all, unless it was interrupted."""
    ended = max((record.last_s for record in records), default=0.0)
    return [record for record in records if record.was_due(ended)]


def add_figures(results: Results, records: Sequence[Record]) -> None:
    """Everything that can be said of requests that were due, as ``replay.…``."""
    sent = [record for record in records if record.sent_s is not None]
    answered = [record for record in sent if record.is_answered]
    _add_counts(results, records, answered)
    _add_percentiles(results, "ttft", [record.ttft_s for record in answered])
    _add_percentiles(results, "inter_token", [gap for record in answered for gap in inter_token_s(record)])
    _add_percentiles(results, "end_to_end", [record.end_to_end_s for record in answered])
    if answered:
        per_token = [record.end_to_end_s / max(1, record.written_tokens) for record in answered]
        results.add("replay.normalized_latency_s", statistics.mean(per_token), unit="s/token")
        prompts = sum(record.prompt_tokens for record in answered)
        results.add("replay.hit_ratio", sum(record.cached_tokens for record in answered) / prompts)
        seconds = max(record.end_s or 0.0 for record in answered)
        results.add("replay.output_tok_s", sum(record.written_tokens for record in answered) / seconds, unit="tok/s")
        results.add("replay.prompt_tok_s", prompts / seconds, unit="tok/s")
    _add_fairness(results, records)
    _add_percentiles(results, "late", [record.late_s for record in sent], {99: SENDER_GOAL})


def _add_counts(results: Results, records: Sequence[Record], answered: Sequence[Record]) -> None:
    errors = Counter(record.outcome for record in records if record.outcome not in ("", UNFINISHED))
    unfinished = sum(record.outcome == UNFINISHED for record in records)
    counts = {"asked": len(records), "answered": len(answered), "failed": errors.total(), "unfinished": unfinished}
    results.add_value("replay.requests", counts)
    results.add_value("replay.errors", dict(errors.most_common()))
    if length := last_arrival_s(records):
        results.add("replay.offered_req_s", len(records) / length, unit="req/s")
    if seconds := max((record.end_s or record.due_s for record in records), default=0.0):
        results.add("replay.seconds", seconds, unit="s")


def _add_percentiles(
    results: Results, name: str, samples: Iterable[float], goals: Mapping[int, str] | None = None
) -> None:
    """goals: by percentile."""
    values = list(samples)
    for percent in PERCENTILES if values else ():
        goal = (goals or {}).get(percent)
        results.add(f"replay.{name}_p{percent}_s", percentile(values, percent), unit="s", goal=goal)


def _add_fairness(results: Results, records: Sequence[Record]) -> None:
    tenants = tenants_of(records)
    results.add_value("replay.tenants", tenants)
    indices = {
        "service": [float(tenant.service) for tenant in tenants],
        "served_share": [tenant.served_share or 0.0 for tenant in tenants],
    }
    for name, values in indices.items():
        if len(values) > 1 and any(values):  # nothing was shared, fairly or not, where nobody got anything
            results.add(f"replay.jain_{name}", jain(values))
