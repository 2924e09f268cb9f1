"""When requests arrive: by a Poisson process, or as a trace has it at another speed; and how many of them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from bench.traces.request import TracedRequest


def poisson(requests: Sequence[TracedRequest], rate: float, rng: random.Random) -> list[TracedRequest]:
    """The same requests in the same order, with independent exponential gaps: ``rate`` of them a second on average.

    The first comes after a gap too. Raises ValueError for a rate that is not above 0.
    """
    _check(rate)
    at, arriving = 0.0, []
    for request in requests:
        at += rng.expovariate(rate)
        arriving.append(dataclasses.replace(request, at_s=at))
    return arriving


def at_rate(requests: Sequence[TracedRequest], rate: float) -> list[TracedRequest]:
    """The trace's own arrivals, stretched or shortened so that ``rate`` of them come a second on average.

    The rate of a trace is its requests but for the first over its length. Raises ValueError for a rate that is not
    above 0 and for a trace whose requests all come at once, which no factor brings to a rate.
    """
    _check(rate)
    if len(requests) < 2:
        return list(requests)
    length = max(request.at_s for request in requests) - min(request.at_s for request in requests)
    if length == 0:
        raise ValueError("the trace's requests all come at once: give them Poisson arrivals")
    return at_speed(requests, rate * length / (len(requests) - 1))


def at_speed(requests: Sequence[TracedRequest], speed: float) -> list[TracedRequest]:
    """``speed`` times as fast: a trace of an hour takes half an hour at 2. Raises ValueError if it is not above 0."""
    _check(speed)
    return [dataclasses.replace(request, at_s=request.at_s / speed) for request in requests]


def cut(
    requests: Sequence[TracedRequest], *, count: int | None = None, seconds: float | None = None
) -> list[TracedRequest]:
    """The first ``count`` requests, and of those the ones that arrive before ``seconds``."""
    kept = requests if count is None else requests[:count]
    return [request for request in kept if seconds is None or request.at_s < seconds]


def has_arrivals(requests: Sequence[TracedRequest]) -> bool:
    """Whether the trace says when its requests arrive."""
    return any(request.at_s > 0 for request in requests)


def _check(factor: float) -> None:
    if not 0 < factor < float("inf"):
        raise ValueError(f"expected a number above 0, not {factor}")
