"""The report of a replay: an HTML page with tables and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.replay.figures import (
    OUTPUT_PRICE,
    PERCENTILES,
    SENDER_GOAL,
    Tenant,
    inter_token_s,
    last_arrival_s,
    served_until,
    tenants_of,
)
from bench.replay.record import Record
from bench.report.page import Cell, Page
from bench.report.plots import BarSeries, Mark, Series, bars, distribution, lines
from bench.results import Results

MOST_TENANTS = 8
"""Lines of a plot, and groups of bars, that can still be told apart."""
TENANT_COLUMNS: dict[str, Callable[[Tenant], Cell]] = {
    "tenant": lambda one: one.name,
    "asked": lambda one: one.asked,
    "answered": lambda one: one.answered,
    "prompt": lambda one: one.prompt_tokens,
    "cached": lambda one: one.cached_tokens,
    "output": lambda one: one.output_tokens,
    "service": lambda one: one.service,
    "share": lambda one: one.served_share,
    "TTFT p50": lambda one: one.ttft_p50_s,
    "p95": lambda one: one.ttft_p95_s,
    "end p50": lambda one: one.end_to_end_p50_s,
}
TIME_POINTS = 120
SHORTEST_S = 0.0001
"""On a logarithmic axis: two pieces of text that came in one packet are drawn at this gap."""

INTRO = """Requests were sent when the trace has them arrive, whatever became of the ones before, each with its tenant's
API key. Times are as a client sees them, from sending a request. Prompts were made anew: they share what the trace
says they share, and no tenant's prompt is ever found in another tenant's cache."""


def write_page(
    path: Path, trace: str, results: Results, records: Sequence[Record], incomplete: str | None = None
) -> None:
    """Write it. results: with the figures of the same records. incomplete: why the replay did not come to its end."""
    values = {result["name"].removeprefix("replay."): result["value"] for result in results.results}
    page = Page(f"Replay of {Path(trace).name}", INTRO)
    if incomplete is not None:
        page.section("Not complete", f"The replay did not come to its end: {incomplete}")
    _summary(page, values)
    _latency(page, values, [record for record in records if record.is_answered])
    _time(page, records)
    _tenants(page, values, records)
    _sender(page, values)
    page.write(path)


def _summary(page: Page, values: dict[str, Any]) -> None:
    trace, requests = values["trace"], values["requests"]
    page.section("What was asked and answered", f"The model is {trace['model']}.")
    rows: list[tuple[str, float | None]] = [
        ("Requests of the trace", trace["requests"]),
        (f"Cut to the context of {trace['context']:,} tokens", trace["cut"]),
        ("Left out: longer than the context", trace["too_long"]),
        ("Left out: without prompt or answer", trace["empty"]),
        ("Due", requests["asked"]),
        ("Answered", requests["answered"]),
        ("Failed", requests["failed"]),
        ("Under way when the replay was interrupted", requests["unfinished"]),
        ("Not due by then", values["not_due"]),
        ("Requests per second offered", values.get("offered_req_s")),
        ("Seconds, to the last answer", values.get("seconds")),
        ("Output tokens per second", values.get("output_tok_s")),
        ("Prompt tokens per second", values.get("prompt_tok_s")),
        ("Share of prompt tokens found in the prefix cache", values.get("hit_ratio")),
    ]
    page.table(("of this replay", ""), [row for row in rows if row[1] is not None])
    if values["errors"]:
        page.table(("error", "requests"), list(values["errors"].items()), "Errors, by the API's code")


def _latency(page: Page, values: dict[str, Any], answered: Sequence[Record]) -> None:
    page.section("Latency", "Of the requests that were answered." if answered else "No request was answered.")
    if not answered:
        return
    names = {"ttft": "Time to first token", "inter_token": "Between tokens", "end_to_end": "To the end of the answer"}
    page.table(
        ("seconds", *(f"p{percent}" for percent in PERCENTILES)),
        [(label, *(values.get(f"{name}_p{percent}_s") for percent in PERCENTILES)) for name, label in names.items()],
        f"Mean of end-to-end time over output tokens: {values['normalized_latency_s']:.4f} s per token",
    )
    samples = {
        "ttft": [record.ttft_s for record in answered],
        "inter_token": [gap for record in answered for gap in inter_token_s(record)],
        "end_to_end": [record.end_to_end_s for record in answered],
    }
    series = [_distribution(label, samples[name]) for name, label in names.items() if samples[name]]
    page.plot(
        lines("How long it took", "seconds", "% of requests or tokens", series, x_scale="log"),
        "A point (x, y): y percent took x or less. Pieces of text that came together are drawn at 0.1 ms.",
    )


def _distribution(label: str, samples: Iterable[float]) -> Series:
    return distribution(label, [max(SHORTEST_S, sample) for sample in samples])


def _time(page: Page, records: Sequence[Record]) -> None:
    end = max(record.end_s or record.due_s for record in records)
    times = [end * step / TIME_POINTS for step in range(TIME_POINTS + 1)]
    waiting = Series("no text yet", [(at, float(_count(records, at, begun=False))) for at in times])
    writing = Series("being written", [(at, float(_count(records, at, begun=True))) for at in times])
    page.section("In the course of time")
    marks = [Mark("last arrival", x=last_arrival_s(records))]
    page.plot(lines("Requests under way", "seconds", "requests", [waiting, writing], marks=marks))


def _count(records: Sequence[Record], at: float, *, begun: bool) -> int:
    """Requests that are sent and not over, and have text or none yet."""
    return sum(
        record.sent_s is not None
        and record.sent_s <= at < (record.end_s if record.end_s is not None else float("inf"))
        and (bool(record.text_s) and record.text_s[0] <= at) == begun
        for record in records
    )


def _tenants(page: Page, values: dict[str, Any], records: Sequence[Record]) -> None:
    tenants = tenants_of(records)
    text = (
        "Service is what the scheduler counts: a computed prompt token 1, a cached one 0, an output token "
        f"{OUTPUT_PRICE}. The share is what a tenant got until the last arrival, of what it had asked for: it "
        "should be near 1 for tenants that ask for less than their share of the server, however much others ask for. "
        "Tokens are of answered requests; times to the first token and to the end are in seconds."
    )
    page.section("Tenants", text)
    indices = {"service": values.get("jain_service"), "served share": values.get("jain_served_share")}
    told = ", ".join(f"{name} {index:.3f}" for name, index in indices.items() if index is not None)
    columns = {name: cells for name, of in TENANT_COLUMNS.items() if _has_some(cells := [of(one) for one in tenants])}
    rows = list(zip(*columns.values(), strict=True))
    page.table(list(columns), rows, told and f"Jain's index (1: all have the same): {told}")
    _tenant_plots(page, sorted(tenants, key=lambda one: -one.service)[:MOST_TENANTS], records, len(tenants))


def _has_some(cells: Sequence[Cell]) -> bool:
    return any(cell is not None for cell in cells)


def _tenant_plots(page: Page, shown: Sequence[Tenant], records: Sequence[Record], total: int) -> None:
    """Of those with most service, the most first."""
    names = [one.name for one in shown]
    which = f"The {len(shown)} tenants of {total} with most service." if total > len(shown) else ""
    if any(one.ttft_p95_s is not None for one in shown):
        ttfts = [
            BarSeries("p50", [one.ttft_p50_s for one in shown]),
            BarSeries("p95", [one.ttft_p95_s for one in shown]),
        ]
        page.plot(bars("Time to first token by tenant", "seconds", names, ttfts), which)
    end = max(record.end_s or record.due_s for record in records)
    times = [end * step / TIME_POINTS for step in range(TIME_POINTS + 1)]
    series = []
    for name in names:
        own = [record for record in records if record.tenant == name]
        series.append(Series(name, [(at, sum(served_until(one, at) for one in own)) for at in times]))
    page.plot(
        lines("What tenants got", "seconds", "tokens, an output token twice", series),
        f"Prompts, cached or not, with their first text. {which}".strip(),
    )


def _sender(page: Page, values: dict[str, Any]) -> None:
    page.section(
        "The sender itself",
        f"How late requests were sent; the goal is {SENDER_GOAL.removeprefix('<=')} s at p99. What is more is not the "
        "server's fault: the sender did not get the processor in time, and the figures above are of both.",
    )
    late = [(f"p{percent}", values.get(f"late_p{percent}_s")) for percent in PERCENTILES]
    page.table(("late by", "seconds"), late)
