"""How many requests a second, and so how many tenants, a card sustains within latency targets: the engine's scheduler
and pool in virtual time, over a cost model of the card. With --check: how right that is on this machine's processor.

--trace gives lengths, arrivals, tenants and shared prefixes; it is stretched to the rates that are tried. See
docs/planning.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures.figure import plain
from bench.planning.card import Card, on_device, on_this_machine, planned_settings
from bench.planning.check import ROUNDS, check
from bench.planning.options import BYTES, CPU, check_options
from bench.planning.planner import LATE, PERCENT, Length, Plan, Point, Targets, Watcher, plan
from bench.planning.shapes import check_shared, known, shape_of
from bench.progress import draw
from bench.refusal import refuse
from bench.report.page import Cell, Page
from bench.report.plots import Mark, Series, lines
from bench.results import Results
from bench.simulation.architectures import SMOLLM2_135M
from bench.simulation.demand import Demand
from bench.simulation.hardware import DEVICES
from bench.traces.errors import TraceMissing
from bench.traces.named import named
from bench.traces.request import TracedRequest
from pagoda_inference.model.loading import ECHO

REQUESTS = 5_000
"""Of a trace; what is drawn from a law."""
QUICK = Length(requests=150, seconds=30, warm_up=30, tolerance=0.1)
QUICK_NOTE = (
    f"A quick sample, which overestimates: {QUICK.seconds:g} seconds of arrivals are over before as many requests run "
    "at once as would in the long run, so a rate at which the queue would grow seems to be sustained."
)
CHECKED = ("sharegpt", "arena"), ("law:sharegpt", "law:alpaca")
"""Traces of the check, with a folder of traces and without."""
TRACE = "law:sharegpt"
SEED = 20230917


@dataclass(frozen=True)
class Asked:
    """What is planned for. notes: what a reader of the plan has to know of it."""

    card: Card
    trace: str
    demand: Demand
    targets: Targets
    notes: Sequence[str]


def run(results: Results, options: argparse.Namespace) -> None:
    if options.check:
        _check(results, options)
        return
    asked = _asked(options)
    _record_asked(results, asked)
    print(f"plan: {asked.card.name}, one rate after the other, each of them for some time:", file=sys.stderr)
    points: list[Point] = []
    told: list[dict[str, Any]] = []
    found: Plan | None = None
    shown = _Shown(points, told, asked.targets)
    try:
        with results.keeping("plan.by_rate", told):
            found = plan(asked.card, asked.demand, asked.targets, QUICK if options.quick else Length(), shown)
        _record(results, asked, found, options.tenant_rate)
    except ValueError as error:
        results.incomplete = str(error)
        raise SystemExit(f"bench: {error}") from None
    finally:
        shown.end()
        if options.html and points:
            write_page(results, asked, points, found, options.html)


class _Shown(Watcher):
    """On standard error: how far a rate is, where somebody looks, and a line for each that is done. Keeps them, too."""

    def __init__(self, points: list[Point], told: list[dict[str, Any]], targets: Targets) -> None:
        self._points = points
        self._told = told
        self._targets = targets
        self._percent = -1

    def at(self, rate: float, share: float) -> None:
        if (percent := int(99 * share)) != self._percent:
            self._percent = percent
            draw(f"plan: {plain(rate)} requests/s", percent, 100)

    def tried(self, point: Point) -> None:
        self._points.append(point)
        self._told.append(point.told(self._targets))
        self.end()
        latencies = "" if point.lost else f" ({plain(point.ttft_s)} s, {plain(point.token_s)} s a token)"
        print(f"plan: {plain(point.rate)} requests/s: {_verdict(point, self._targets)}{latencies}", file=sys.stderr)

    def end(self) -> None:
        """Of the line that is written over."""
        if self._percent >= 0 and sys.stderr.isatty():
            print(f"\r{'':80}\r", end="", file=sys.stderr)
        self._percent = -1


def _verdict(point: Point, targets: Targets) -> str:
    return "lost, the queue grows" if point.lost else "kept" if point.keeps(targets) else "missed"


def _check(results: Results, options: argparse.Namespace) -> None:
    names = (options.trace,) if options.trace else CHECKED[0] if options.traces else CHECKED[1]
    traces: dict[str, Sequence[TracedRequest]] = {name: _trace(name, options) for name in names}
    try:
        check(results, traces, dtype=options.dtype, rounds=options.repeats or ROUNDS)
    except ValueError as error:
        raise SystemExit(f"bench: {error}") from None


def _asked(options: argparse.Namespace) -> Asked:
    check_options(options)
    name = options.trace or TRACE
    trace = _trace(name, options)
    card, note = _card(options)
    try:
        demand = Demand.of(trace, card.context, SEED)
    except ValueError as error:
        refuse(f"{name}: {error}")
    targets = Targets(options.ttft_ms / 1000, options.token_ms / 1000)
    return Asked(card, name, demand, targets, [one for one in (QUICK_NOTE if options.quick else "", note) if one])


def _trace(name: str, options: argparse.Namespace) -> list[TracedRequest]:
    wanted = options.requests or REQUESTS
    try:
        return named(name, options.traces, wanted, random.Random(SEED))[:wanted]
    except (TraceMissing, ValueError) as error:
        told = str(error)
        refuse(told if name in told else f"{name}: {told}")
    except OSError as error:
        refuse(f"{name}: {error.strerror or error}")


def _card(options: argparse.Namespace) -> tuple[Card, str]:
    """And a note, where the engine would not serve such a card's plan; else ""."""
    on_cpu = options.gpu == CPU
    settings = planned_settings(options.dtype, on_cpu=on_cpu)
    model = options.model or settings.model
    if model == ECHO:
        refuse("the echo model computes nothing that a card would sustain: choose another --model")
    if on_cpu:
        settings = dataclasses.replace(settings, model=_served_here(model))
        print("plan: loading the model and measuring its steps on this machine", file=sys.stderr)
        return on_this_machine(settings), ""
    device = next(device for device in DEVICES.values() if device.name.lower() == options.gpu)
    shape = shape_of(model, BYTES[options.dtype])
    note = check_shared(model, options.devices)
    return on_device(shape, device, options.devices, settings), note


def _served_here(model: str) -> str:
    """What the engine loads for ``--model``."""
    shape = None if Path(model).exists() else known(model)
    if shape is None:
        return model
    if shape is not SMOLLM2_135M:
        refuse(f"--gpu {CPU} loads the model, and {model} is a shape alone: name a folder or a hub id")
    return ""


def _record_asked(results: Results, asked: Asked) -> None:
    card, demand = asked.card, asked.demand
    results.add_value("plan.card", {"name": card.name, "kv_tokens": card.blocks * card.settings.block_size})
    trace = {"name": asked.trace, "requests": len(demand.requests), "cut": demand.cut, "clients": demand.clients}
    results.add_value("plan.trace", trace)
    results.add_value("plan.targets", dataclasses.asdict(asked.targets))
    if asked.notes:
        results.add_value("plan.notes", asked.notes)


def _record(results: Results, asked: Asked, found: Plan, tenant_rate: float | None) -> None:
    best = found.sustained
    results.add("plan.rate", best.rate, unit="requests/s")
    client_rate = asked.demand.client_rate if tenant_rate is None else tenant_rate / 60
    if client_rate is None:
        results.skip("plan.tenants", "the trace has no clients: --tenant-rate says what a tenant asks for")
    else:
        results.add("plan.tenants", found.tenants(client_rate))
        results.add("plan.tenant_rate", 60 * client_rate, unit="requests/min")
    results.add("plan.ttft_p95_s", best.ttft_s, unit="s")
    results.add("plan.token_p95_s", best.token_s, unit="s")
    results.add("plan.output_tok_s", best.output_tokens_per_s, unit="tok/s")
    results.add("plan.running", best.running)
    results.add("plan.hit_ratio", best.hit_ratio)
    results.add("plan.pool_used", best.pool_used)
    results.add_value("plan.by_rate", [point.told(asked.targets) for point in found.points])


TOLD = {
    "plan.rate": "highest rate",
    "plan.tenants": "tenants",
    "plan.tenant_rate": "what a tenant asks for",
    "plan.ttft_p95_s": f"to the first token, {PERCENT} of 100",
    "plan.token_p95_s": f"for a token after it, {PERCENT} of 100",
    "plan.output_tok_s": "output, computed",
    "plan.running": "requests that run at once",
    "plan.hit_ratio": "share of prompts from the cache",
    "plan.pool_used": "share of the pool in use",
}
"""Results in the words of the page."""


def write_page(results: Results, asked: Asked, points: Sequence[Point], found: Plan | None, path: str) -> None:
    """found: None where the search did not come to its end. points: what was tried until then."""
    card, demand, targets = asked.card, asked.demand, asked.targets
    page = Page(
        f"Capacity of {card.name}",
        f"How many requests of `{asked.trace}` a second it sustains where {PERCENT} of 100 are to have their first "
        f"token within {targets.ttft_s:g} s, and the tokens after it within {targets.token_s:g} s each on their mean. "
        "Simulated: the engine's scheduler, KV pool, prefix cache and pace in virtual time, over a model of what steps "
        "cost. `docs/planning.md` says how, and what of it is assumed.\n\n" + "\n\n".join(asked.notes),
    )
    page.section("What was planned")
    settings = card.settings
    rows: list[list[Cell]] = [
        ["card", card.name],
        ["KV pool", f"{card.blocks * settings.block_size:,} tokens"],
        ["a step", f"{settings.token_budget:,} tokens and {settings.max_running:,} requests at most"],
        ["trace", f"`{asked.trace}`: {len(demand.requests):,} requests, {demand.clients or 'no'} clients"],
        ["requests cut", f"{demand.cut:,}, to the context of {card.context:,} tokens"],
        ["targets", f"{targets.ttft_s:g} s to the first token, {targets.token_s:g} s a token after it"],
    ]
    page.table(("", "value"), rows)
    if found is None:
        page.section("Not complete", "The search did not come to its end: a highest rate is not known.")
    else:
        page.section("The highest rate within the targets")
        values = {one["name"]: one for one in results.results if one["name"] in TOLD}
        shown = [(TOLD[name], f"{plain(one['value'])} {one.get('unit', '')}".strip()) for name, one in values.items()]
        page.table(("quantity", "value"), shown + [(TOLD[one["name"]], one["why"]) for one in results.skipped])
    _add_rates(page, asked, sorted(points, key=lambda point: point.rate))
    page.write(path)


def _add_rates(page: Page, asked: Asked, points: Sequence[Point]) -> None:
    """Table and plots of every rate that was tried."""
    page.section(
        "Every rate that was tried",
        f"Latencies are those that {PERCENT} of 100 requests keep. A rate is lost where the mean latency a token is "
        f"above {LATE} times both targets together: the queue grows, and the run was ended. Output that is asked for "
        "is the rate times the mean answer; computed is what came from the first arrival that is measured to the "
        "last. It is less where more and more requests ran at once until then: in short runs, and where a queue grows. "
        "Refused are requests that the pool can never hold.",
    )
    headers = (
        "requests/s", "first token (s)", "token (s)", "targets", "asked (tok/s)", "computed (tok/s)", "running",
        "pool used", "refused",
    )  # fmt: skip
    rows = [_row(point, asked.targets) for point in points]
    shown = len(headers) if any(point.refused for point in points) else len(headers) - 1
    page.table(headers[:shown], [row[:shown] for row in rows])
    lost = min((point.rate for point in points if point.lost), default=None)
    kept = [point for point in points if not point.lost]
    if not kept:
        return
    for name, target, values in (
        ("to the first token", asked.targets.ttft_s, [(point.rate, point.ttft_s) for point in kept]),
        ("for a token after it", asked.targets.token_s, [(point.rate, point.token_s) for point in kept]),
    ):
        marks = [Mark("target", y=target), *([] if lost is None else [Mark("lost from here on", x=lost)])]
        title = f"Seconds {name}, {PERCENT}th percentile"
        series = [Series(asked.card.name, values)]
        page.plot(lines(title, "requests/s", "s", series, y_max=4 * target, marks=marks), "Rates that were not lost.")


def _row(point: Point, targets: Targets) -> list[Cell]:
    latencies = ["–", "–"] if point.lost else [plain(point.ttft_s), plain(point.token_s)]
    verdict: Cell = "lost" if point.lost else point.keeps(targets)
    numbers = (point.asked_tokens_per_s, point.output_tokens_per_s, point.running, point.pool_used)
    return [plain(point.rate), *latencies, verdict, *map(plain, numbers), point.refused]
