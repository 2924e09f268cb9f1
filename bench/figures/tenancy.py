"""What the paper does not have: tenants. Two recorded traces with clients, at a rate above what the machine sustains,
under four policies of the same scheduler and pool.

``fcfs``: one account for all, first come, first served, as in the paper. ``fair``: an account for each client, without
quotas. ``limits``: the heaviest clients may hold no more than a share of the pool. ``reservations``: the others have a
share of it for sure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.figures.figure import Figure, Number, Sample
from bench.report.plots import BarSeries, bars
from bench.results import percentile
from bench.simulation.demand import Demand
from bench.simulation.job import Job
from bench.simulation.loop import Outcome, Window, simulate
from bench.simulation.settings import BLOCK, SMALL
from bench.traces import catalogue
from bench.traces.errors import TraceMissing
from pagoda_inference.protocol import Account

TRACES = ("arena", "servegen")
POLICIES = ("fcfs", "fair", "limits", "reservations")
OVERLOAD = 1.25
"""Requests come so many times as fast as they are served."""
HEAVY = 0.5
"""The clients that ask for this share of the tokens together, the heaviest first, are the heavy ones."""
HEAVY_LIMIT, LIGHT_RESERVATION = 0.5, 0.25
"""Shares of the pool: most that the heavy clients hold together, and what the others have for sure together."""


@dataclass(frozen=True)
class Case:
    policy: str
    rate: float


def make(sample: Sample) -> Sequence[Figure]:
    figures = []
    for trace in TRACES:
        try:
            figures.append(of_demand(trace, _demand(sample, trace), sample))
        except TraceMissing as missing:
            figures.append(Figure(_key(trace), f"Tenants of the {trace} trace", skipped=[("all", str(missing))]))
    return figures


def of_demand(trace: str, demand: Demand, sample: Sample) -> Figure:
    """The four policies on the requests of a trace."""
    served = _served(sample, demand)
    cases = [Case(policy, OVERLOAD * served) for policy in POLICIES]
    outcomes = dict(zip(POLICIES, sample.each(partial(_run, sample, demand), cases), strict=True))
    figure = Figure(_key(trace), f"Tenants of the {trace} trace at {OVERLOAD:g} times what is served")
    _fill(figure, demand, outcomes, sample, served)
    return figure


def _key(trace: str) -> str:
    return f"tenancy.{trace}"


def _demand(sample: Sample, trace: str) -> Demand:
    if sample.traces is None:
        raise TraceMissing("needs a folder of traces: --traces DIR")
    return Demand.of(catalogue.read(trace, sample.traces), SMALL.model.longest, sample.seed)


def heavy_clients(demand: Demand) -> set[str]:
    """The fewest clients that ask for HEAVY of all tokens."""
    tokens: Counter[str] = Counter()
    for request in demand.requests:
        tokens[request.client] += request.prompt_tokens + request.output_tokens
    heavy: set[str] = set()
    asked = 0
    for client, count in tokens.most_common():
        if asked >= HEAVY * tokens.total():
            break
        heavy.add(client)
        asked += count
    return heavy


def accounts(policy: str, demand: Demand, blocks: int) -> list[Account]:
    """Quotas of every client; the heavy ones share their limit equally, the others their reservation."""
    heavy = heavy_clients(demand)
    clients = sorted({request.client for request in demand.requests})
    light = len(clients) - len(heavy)
    made = []
    for client in clients:
        limit = math.ceil(HEAVY_LIMIT * blocks / len(heavy)) if policy == "limits" and client in heavy else None
        kept = int(LIGHT_RESERVATION * blocks / light) if policy == "reservations" and client not in heavy else 0
        made.append(Account(client, reservation=kept, limit=limit))
    return made


def _jobs(sample: Sample, demand: Demand, rate: float) -> list[Job]:
    return demand.jobs(rate, sample.warm_up + sample.requests)


def _served(sample: Sample, demand: Demand) -> float:
    """Requests/s when all are there at once."""
    jobs = _jobs(sample, demand, 1e6)
    simulate(SMALL.paged(keep=True), SMALL.cost(), jobs)
    return len(jobs) / max(job.end_s or 0.0 for job in jobs)


def _run(sample: Sample, demand: Demand, case: Case) -> Outcome:
    jobs = _jobs(sample, demand, case.rate)
    if case.policy == "fcfs":
        for job in jobs:
            job.conversation, job.tenant = job.tenant, "everybody"
        return simulate(SMALL.paged(keep=True), SMALL.cost(), jobs, Window(sample.warm_up))
    for job in jobs:
        job.conversation = job.tenant
    quotas = accounts(case.policy, demand, SMALL.slots // BLOCK)
    return simulate(SMALL.paged(keep=True, accounts=quotas), SMALL.cost(), jobs, Window(sample.warm_up))


def _fill(figure: Figure, demand: Demand, outcomes: dict[str, Outcome], sample: Sample, served: float) -> None:
    heavy = heavy_clients(demand)
    figure.text = (
        f"OPT-13B on one A100; {demand.clients} clients, of whom {len(heavy)} ask for half of the tokens; "
        f"{OVERLOAD * served:.2f} requests/s where {served:.2f} are served; {sample.requests} requests after "
        f"{sample.warm_up}. The heavy clients together may hold {HEAVY_LIMIT:.0%} of the pool under `limits`; the "
        f"others together have {LIGHT_RESERVATION:.0%} for sure under `reservations`."
    )
    waits: dict[str, dict[str, float]] = {"light": {}, "heavy": {}}
    for policy, outcome in outcomes.items():
        for kind in waits:
            jobs = [job for job in outcome.jobs if (job.conversation in heavy) == (kind == "heavy") and not job.error]
            waits[kind][policy] = percentile([(job.first_token_s or 0.0) - job.arrival_s for job in jobs], 95)
            figure.numbers.append(Number(f"{policy}.{kind}_ttft_p95", waits[kind][policy], "s"))
        figure.numbers.append(Number(f"{policy}.tokens", outcome.output_tokens_per_s, "tok/s"))
        figure.numbers.append(Number(f"{policy}.preemptions", sum(job.preemptions for job in outcome.jobs)))
        figure.numbers.append(Number(f"{policy}.refused", sum(bool(job.error) for job in outcome.jobs)))
    gain = waits["light"]["fcfs"] / waits["light"]["fair"]
    figure.numbers.append(
        Number("light_gain", gain, "x", note="time to first token of the light clients, fcfs over fair")
    )
    cost = outcomes["fair"].output_tokens_per_s / outcomes["fcfs"].output_tokens_per_s
    figure.numbers.append(Number("throughput_ratio", cost, "x", note="fair over fcfs"))
    series = [BarSeries(f"{kind} clients", [waits[kind][policy] for policy in POLICIES]) for kind in waits]
    svg = bars("95 of 100 first tokens within", "s", list(POLICIES), series)
    figure.plots.append((svg, "Light clients ask for half of the tokens, too, but there are many of them."))
