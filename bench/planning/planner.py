"""The highest rate of a trace at which a card keeps its latency targets."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any

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
    """What a rate gives. Infinite latencies: it was lost, the queue grew and the run was ended.

    output_tokens_per_s: computed from the first arrival that is measured to the last, and on while anybody waits.
    asked_tokens_per_s: the rate times the mean answer; more than what is computed while more and more run at once.
    refused: requests that the pool can never hold.
    """

    rate: float
    ttft_s: float
    token_s: float
    output_tokens_per_s: float
    asked_tokens_per_s: float
    running: float
    hit_ratio: float
    pool_used: float
    refused: int

    @property
    def lost(self) -> bool:
        return math.isinf(self.ttft_s)

    def keeps(self, targets: Targets) -> bool:
        return self.ttft_s <= targets.ttft_s and self.token_s <= targets.token_s

    def told(self, targets: Targets) -> dict[str, Any]:
        """For JSON, which has no infinite numbers."""
        latencies = {"ttft_s": None, "token_s": None} if self.lost else {}
        return asdict(self) | latencies | {"lost": self.lost, "keeps": self.keeps(targets)}


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


class Watcher:
    """Is told how the search goes; does nothing with it."""

    def at(self, rate: float, share: float) -> None:
        """share: of the arrivals at this rate that are there already."""

    def tried(self, point: Point) -> None:
        """A rate is done."""


def plan(card: Card, demand: Demand, targets: Targets, length: Length, watcher: Watcher | None = None) -> Plan:
    """Raises ValueError where no rate keeps the targets, or every one does."""
    watcher = watcher or Watcher()
    points: dict[float, Point] = {}

    def sustains(rate: float) -> bool:
        window = Window(length.warm_up, latency_limit_s=LATE * (targets.token_s + targets.ttft_s))
        count = length.warm_up + max(length.requests, round(rate * length.seconds))
        jobs = demand.jobs(rate, count)
        end = jobs[-1].arrival_s or 1.0
        outcome = card.run(jobs, window, lambda now, work: watcher.at(rate, min(1.0, now / end)))
        points[rate] = point(rate, outcome)
        watcher.tried(points[rate])
        return points[rate].keeps(targets)

    try:
        rate = highest(sustains, start=1.0, tolerance=length.tolerance, stride=STRIDE)
    except ValueError:
        wanted = f"{card.name} keeps {targets.ttft_s:g} s to the first token and {targets.token_s:g} s a token at"
        if points[1.0].keeps(targets):
            raise ValueError(f"{wanted} every rate that was tried") from None
        lowest = points[min(points)]
        has = "the queue grows" if lowest.lost else f"they are {lowest.ttft_s:.3g} s and {lowest.token_s:.3g} s"
        raise ValueError(f"{wanted} no rate: at {lowest.rate:.3g} requests/s {has}") from None
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
        rate * statistics.fmean(job.output for job in outcome.jobs),
        outcome.running,
        sum(job.cached for job in jobs) / prompt if prompt else 0.0,
        outcome.memory.tokens / outcome.memory.total if outcome.memory.total else 0.0,
        sum(bool(job.error) for job in outcome.jobs),
    )
