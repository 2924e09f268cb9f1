"""What the paper does not have: KV that is kept between the rounds of a conversation, in the pool and on the host.

The paper drops a request's KV when it ends (section 6.5), so that every round computes the conversation again. Here the
same pool keeps what nobody needs more, and a tier on the host keeps what the pool has to evict.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.figures.figure import LATENCY_LIMIT_S, Figure, Number, Sample
from bench.figures.sustained import AXIS_END_S
from bench.report.plots import Series, distribution, lines
from bench.simulation.conversations import BETWEEN_S, Limits, Turn, users_at
from bench.simulation.hardware import GIB
from bench.simulation.loop import Outcome, Window, simulate
from bench.simulation.rates import Runs, highest
from bench.simulation.rounds import InRounds
from bench.simulation.settings import SMALL
from bench.simulation.tiered import HostTier

LIMITS = Limits(SMALL.model.longest, SMALL.model.longest, SMALL.model.longest)
HOST_BYTES = 64 * GIB
RATE = 1.2
"""Turns/s of the comparison at one rate."""
WARM_UP_S = 300.0
"""Until as many conversations go on as later."""
LEAST = 600
"""Measured rounds, also of a quick run."""
START = 1.5
"""Where the search for sustained rates begins, turns/s."""


@dataclass(frozen=True)
class Keeping:
    name: str
    title: str
    keep: bool
    host_bytes: float = 0.0


KEEPINGS = (
    Keeping("nothing", "nothing kept, as in the paper", keep=False),
    Keeping("pool", "kept in the pool", keep=True),
    Keeping("host", "kept in the pool and on the host", keep=True, host_bytes=HOST_BYTES),
)
NOTHING, POOL, HOST = KEEPINGS


@dataclass(frozen=True)
class Returned:
    """Of one run. hit_ratio: cached over prompt tokens. first_token_s: of turns that return."""

    hit_ratio: float
    first_token_s: list[float]
    latency_s: float


def make(sample: Sample) -> Sequence[Figure]:
    figure = Figure(
        "tiers",
        "A conversation's next round, OPT-13B",
        f"Conversations of ShareGPT's kind, up to {SMALL.model.longest} tokens, {RATE:g} rounds/s; a user says "
        f"something every {BETWEEN_S:g} s. The pool holds {SMALL.slots:,} tokens, the host {HOST_BYTES / GIB:g} GiB "
        f"more; copies are packed and run beside the steps. {_counts(sample, RATE)[1]:,} rounds after those of "
        f"{WARM_UP_S:g} s; the sustained rate is where the mean normalised latency is {LATENCY_LIMIT_S} "
        "s/token. The paper has nothing of this: it keeps nothing between rounds.",
    )
    returned = dict(zip(KEEPINGS, sample.each(partial(_returned, sample), KEEPINGS), strict=True))
    for keeping, run in returned.items():
        figure.numbers += [
            Number(f"{keeping.name}.hit_ratio", run.hit_ratio, note=keeping.title),
            Number(f"{keeping.name}.ttft_p50_s", statistics.median(run.first_token_s), "s"),
            Number(f"{keeping.name}.ttft_mean_s", statistics.fmean(run.first_token_s), "s"),
            Number(f"{keeping.name}.latency", run.latency_s, "s/token"),
        ]
    ratio = returned[HOST].hit_ratio - returned[POOL].hit_ratio
    figure.numbers.append(Number("host.hit_ratio_gain", ratio, goal=">=0", note="over the pool alone"))
    medians = {keeping: statistics.median(run.first_token_s) for keeping, run in returned.items()}
    for than in (NOTHING, POOL):
        figure.numbers.append(Number(f"host.ttft_over_{than.name}", medians[HOST] / medians[than], goal="<=1"))
    series = [distribution(keeping.title, run.first_token_s) for keeping, run in returned.items()]
    caption = "Time to the first token of rounds that are not a conversation's first."
    figure.plots.append((
        lines(figure.title, "time to first token (s)", "% of returning rounds", series, x_scale="log"),
        caption,
    ))  # fmt: skip
    _sustained(figure, sample)
    return [figure]


def _sustained(figure: Figure, sample: Sample) -> None:
    if sample.quick:
        figure.skipped.append(("sustained", "not in a quick run"))
        return
    found = dict(zip(KEEPINGS, sample.each(partial(_search, sample), KEEPINGS), strict=True))
    for keeping, (rate, _) in found.items():
        figure.numbers.append(Number(f"{keeping.name}.sustained", rate, "rounds/s"))
    for than in (NOTHING, POOL):
        ratio = found[HOST][0] / found[than][0]
        figure.numbers.append(Number(f"host.sustained_over_{than.name}", ratio, goal=">=1"))
    series = [Series(keeping.title, points) for keeping, (_, points) in found.items()]
    plot = lines("Rounds sustained", "rounds/s", "normalised latency (s/token)", series, y_max=AXIS_END_S)
    figure.plots.append((plot, "Every run of the searches that was not lost."))


def _counts(sample: Sample, rate: float) -> tuple[int, int]:
    """Turns of the warm-up, and measured ones."""
    return round(rate * WARM_UP_S), max(LEAST, sample.requests_at(rate))


def _run(sample: Sample, keeping: Keeping, rate: float, limit_s: float | None = None) -> Outcome:
    warm_up, measured = _counts(sample, rate)
    users = users_at(rate, LIMITS, sample.seed, sample.traces)
    turns, before = users.turns(rate, warm_up + measured, sample.seed)
    system = SMALL.tiered(HostTier(keeping.host_bytes), keep=keeping.keep)
    return simulate(InRounds(system, before), SMALL.cost(), turns, Window(warm_up, limit_s))


def _returned(sample: Sample, keeping: Keeping) -> Returned:
    outcome = _run(sample, keeping, RATE)
    jobs = [job for job in outcome.jobs if isinstance(job, Turn) and not job.error]
    return Returned(
        sum(job.cached for job in jobs) / sum(job.prompt for job in jobs),
        [job.first_token_s - job.arrival_s for job in jobs if job.returns and job.first_token_s is not None],
        outcome.normalised_latency_s,
    )


def _search(sample: Sample, keeping: Keeping) -> tuple[float, list[tuple[float, float]]]:
    """The sustained rate, and the points (rate, latency) of the runs that were not lost."""
    runs = Runs(partial(_run, sample, keeping, limit_s=AXIS_END_S), LATENCY_LIMIT_S)
    rate = highest(runs.sustains, start=START, tolerance=sample.tolerance)
    return rate, runs.curve
