"""The highest rate of a trace at which a card keeps its latency targets."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.planning.card import Card
from bench.results import percentile
from bench.simulation.demand import Demand
from bench.simulation.loop import Outcome, Window
from bench.simulation.rates import highest

PERCENT = 95
LATE = 2
"""A run is over when its mean normalised latency is so many times what the targets allow: nothing will mend it."""
STRIDE = 2.0


@dataclass(frozen=True)
class Targets:
    """Seconds that PERCENT of the requests keep: to the first token, and for each token after it on their mean."""

    ttft_s: float
    token_s: float


@dataclass(frozen=True)
class Point:
    """What a rate gives. Infinite latencies: it was too much, and the run was ended."""

    rate: float
    ttft_s: float
    token_s: float
    output_tokens_per_s: float
    running: float
    hit_ratio: float
    pool_used: float

    def keeps(self, targets: Targets) -> bool:
        return self.ttft_s <= targets.ttft_s and self.token_s <= targets.token_s


@dataclass(frozen=True)
class Plan:
    """sustained: at the highest rate found. points: all that were tried, by rate."""

    sustained: Point
    points: list[Point]

    def tenants(self, client_rate: float) -> int:
        """So many tenants with so many requests/s each."""
        return math.floor(self.sustained.rate / client_rate)


@dataclass(frozen=True)
class Length:
    """Of each run: ``seconds`` of arrivals, and at least ``requests``, after ``warm_up`` that are not measured.

    Long enough that a queue that grows is seen to grow.
    """

    requests: int = 1_000
    seconds: float = 300
    warm_up: int = 200
    tolerance: float = 0.03


def plan(card: Card, demand: Demand, targets: Targets, length: Length) -> Plan:
    """Raises ValueError where no rate keeps the targets, or every one does."""
    points: dict[float, Point] = {}

    def sustains(rate: float) -> bool:
        window = Window(length.warm_up, latency_limit_s=LATE * (targets.token_s + targets.ttft_s))
        count = length.warm_up + max(length.requests, round(rate * length.seconds))
        points[rate] = point(rate, card.run(demand.jobs(rate, count), window))
        return points[rate].keeps(targets)

    try:
        rate = highest(sustains, start=1.0, tolerance=length.tolerance, stride=STRIDE)
    except ValueError:
        which = "every rate that was tried" if points[1.0].keeps(targets) else "no rate"
        raise ValueError(
            f"{card.name} keeps {targets.ttft_s:g} s to the first token and {targets.token_s:g} s a token at {which}"
        ) from None
    return Plan(points[rate], [points[rate] for rate in sorted(points)])


def point(rate: float, outcome: Outcome) -> Point:
    jobs = [job for job in outcome.jobs if not job.error and job.end_s is not None]
    prompt = sum(job.prompt for job in jobs)
    lost = outcome.lost or not jobs
    ttft = [(job.first_token_s or 0.0) - job.arrival_s for job in jobs]
    token = [((job.end_s or 0.0) - (job.first_token_s or 0.0)) / max(1, job.output - 1) for job in jobs]
    return Point(
        rate,
        math.inf if lost else percentile(ttft, PERCENT),
        math.inf if lost else percentile(token, PERCENT),
        outcome.output_tokens_per_s,
        outcome.running,
        sum(job.cached for job in jobs) / prompt if prompt else 0.0,
        outcome.memory.tokens / outcome.memory.total if outcome.memory.total else 0.0,
    )
