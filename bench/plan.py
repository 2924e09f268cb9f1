"""How many requests a second, and so how many tenants, a card sustains within latency targets: the engine's scheduler
and pool in virtual time, over a cost model of the card. With --check: how right that is on this machine's processor.

--trace gives lengths, arrivals, tenants and shared prefixes; it is stretched to the rates that are tried. See
docs/planning.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
from collections.abc import Sequence

from bench.planning.card import Card, on_device, on_this_machine, planned_settings
from bench.planning.check import ROUNDS, check
from bench.planning.options import CPU
from bench.planning.planner import Length, Plan, Targets, plan
from bench.planning.shapes import shape_of
from bench.report.page import Page
from bench.report.plots import Mark, Series, lines
from bench.results import Results
from bench.simulation.demand import Demand
from bench.simulation.hardware import DEVICES
from bench.traces.errors import TraceMissing
from bench.traces.named import named
from bench.traces.request import TracedRequest

REQUESTS = 5_000
"""Of a trace; what is drawn from a law."""
QUICK = Length(requests=150, seconds=30, warm_up=30, tolerance=0.1)
CHECKED = ("sharegpt", "arena"), ("law:sharegpt", "law:alpaca")
"""Traces of the check, with a folder of traces and without."""
SEED = 20230917
BYTES = {"auto": 2, "float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "q4": 1}
"""Of a weight and a KV value, nearly."""


def run(results: Results, options: argparse.Namespace) -> None:
    try:
        if options.check:
            _check(results, options)
            return
        targets = Targets(options.ttft_ms / 1000, options.token_ms / 1000)
        trace = _trace(options.trace or "law:sharegpt", options)
        card = _card(options)
        demand = Demand.of(trace, card.context, SEED)
        found = plan(card, demand, targets, QUICK if options.quick else Length())
    except TraceMissing as missing:
        results.skip("plan", str(missing))
        return
    except ValueError as error:
        raise SystemExit(f"bench: {error}") from None
    _record(results, card, demand, found, options.tenant_rate)
    if options.html:
        write_page(results, card, found, targets, options.html)


def _check(results: Results, options: argparse.Namespace) -> None:
    names = (options.trace,) if options.trace else CHECKED[0] if options.traces else CHECKED[1]
    traces: dict[str, Sequence[TracedRequest]] = {name: _trace(name, options) for name in names}
    check(results, traces, dtype=options.dtype, rounds=options.repeats or ROUNDS)


def _trace(name: str, options: argparse.Namespace) -> list[TracedRequest]:
    wanted = options.requests or REQUESTS
    return named(name, options.traces, wanted, random.Random(SEED))[:wanted]


def _card(options: argparse.Namespace) -> Card:
    if options.gpu is None:
        raise SystemExit(f"plan needs a card: --gpu {', '.join(DEVICES)} or {CPU}")
    if options.gpu == CPU:
        settings = planned_settings(options.dtype, on_cpu=True)
        return on_this_machine(dataclasses.replace(settings, model=options.model or settings.model))
    device = next((device for device in DEVICES.values() if device.name.lower() == options.gpu), None)
    if device is None or options.devices < 1:
        raise SystemExit(f"--gpu {options.gpu} --devices {options.devices}: choose from {', '.join(DEVICES)}, {CPU}")
    if options.model is None:
        raise SystemExit("plan needs a model: --model with a name, a folder or a hub id")
    model = shape_of(options.model, BYTES[options.dtype])
    return on_device(model, device, options.devices, planned_settings(options.dtype, on_cpu=False))


def _record(results: Results, card: Card, demand: Demand, found: Plan, tenant_rate: float | None) -> None:
    best = found.sustained
    results.add_value("plan.card", {"name": card.name, "kv_tokens": card.blocks * card.settings.block_size})
    results.add_value(
        "plan.trace", {"requests": len(demand.requests), "cut": demand.cut, "clients": demand.clients}
    )  # fmt: skip
    results.add("plan.rate", best.rate, unit="requests/s")
    client_rate = demand.client_rate if tenant_rate is None else tenant_rate / 60
    if client_rate:
        results.add("plan.tenants", found.tenants(client_rate))
        results.add("plan.tenant_rate", 60 * client_rate, unit="requests/min")
    else:
        results.skip("plan.tenants", "the trace has no clients: --tenant-rate says what a tenant asks for")
    results.add("plan.ttft_p95_s", best.ttft_s, unit="s")
    results.add("plan.token_p95_s", best.token_s, unit="s")
    results.add("plan.output_tok_s", best.output_tokens_per_s, unit="tok/s")
    results.add("plan.running", best.running)
    results.add("plan.hit_ratio", best.hit_ratio)
    results.add("plan.pool_used", best.pool_used)
    kept = [point for point in found.points if math.isfinite(point.ttft_s)]
    results.add_value("plan.by_rate", [dataclasses.asdict(point) for point in kept])


def write_page(results: Results, card: Card, found: Plan, targets: Targets, path: str) -> None:
    page = Page(f"Capacity of {card.name}", __doc__ or "")
    page.section("The highest rate within the targets")
    told = [result for result in results.results if isinstance(result["value"], int | float)]
    page.table(("quantity", "value"), [[r["name"], f"{r['value']:.4g} {r.get('unit', '')}".strip()] for r in told])
    kept = [point for point in found.points if math.isfinite(point.ttft_s)]
    for name, target, values in (
        ("to the first token", targets.ttft_s, [(point.rate, point.ttft_s) for point in kept]),
        ("for a token after it", targets.token_s, [(point.rate, point.token_s) for point in kept]),
    ):
        svg = lines(
            f"Seconds {name}, 95th percentile",
            "requests/s",
            "s",
            [Series(card.name, values)],
            y_max=4 * target,
            marks=[Mark("target", y=target)],
        )
        page.plot(svg, "Rates that were tried; beyond the last ones the queue grows without end.")
    page.write(path)
