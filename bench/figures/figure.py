"""What a reproduced figure consists of, and how large a sample it is made from."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

LATENCY_LIMIT_S = 0.5
"""Normalised latency (s/token) at which a rate is no longer sustained: the middle of the axes of the paper's plots."""


@dataclass(frozen=True)
class Number:
    """name: below the figure's, such as ``paged.batch``. paper: the paper's value. goal: as of ``Results.add``.

    note: why it is not as the paper has it, or what it is where the paper has nothing.
    """

    name: str
    value: float
    unit: str = ""
    paper: float | None = None
    goal: str | None = None
    note: str = ""


@dataclass
class Figure:
    """key: such as ``fig13a``. plots: (SVG, caption). text: what was run, and with how many requests."""

    key: str
    title: str
    text: str = ""
    numbers: list[Number] = field(default_factory=list)
    plots: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """(what, why not)."""


@dataclass(frozen=True)
class Sample:
    """How much is simulated.

    requests: measured ones of each point at least, after ``warm_up`` others. seconds: of arrivals of each point where
    rates are looked for, see ``requests_at``. tolerance: of a bisected rate. traces: folder of traces, or None for the
    length laws. full: as many requests as the paper's traces have. workers: processes.
    """

    requests: int = 1_000
    warm_up: int = 200
    seconds: float = 900
    tolerance: float = 0.02
    traces: Path | None = None
    seed: int = 20230917
    quick: bool = False
    full: bool = False
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)

    def requests_at(self, rate: float, longest_s: float = 3600) -> int:
        """Measured requests of a point at so many requests/s: those of ``seconds`` of arrivals and never fewer than
        ``requests``; with ``full`` those of ``longest_s``, the paper's trace, however many.

        A short trace flatters: what waits at its end has waited a short time, whatever the rate.
        """
        if self.full:
            return max(1, round(rate * longest_s))
        return max(self.requests, round(rate * self.seconds))

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """``work`` of each item, in processes of their own where there are several; in the order of the items. Both
        cross to another process: ``work`` is a function of a module, or a ``partial`` of one.
        """
        todo = list(items)
        if self.workers == 1 or len(todo) < 2:
            return [work(item) for item in todo]
        with ProcessPoolExecutor(self.workers, get_context("fork")) as pool:
            try:
                with _interrupts_held():
                    results = pool.map(work, todo)  # starts them
                return list(results)
            except BaseException:
                for process in active_children():
                    process.kill()
                raise


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """They come when it is over; never to processes that are started meanwhile. Ctrl-C goes to all processes of a
    terminal: it is for the first one, which ends the others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


Maker = Callable[[Sample], Sequence[Figure]]
"""Makes figures. Those that belong together come from one."""


def within(paper: float, percent: float) -> str:
    """The goal of being within so many percent of the paper's value."""
    return f"{plain(paper * (1 - percent / 100))}..{plain(paper * (1 + percent / 100))}"


def near(paper: float, points: float) -> str:
    """The goal of being within so many units of the paper's value."""
    return f"{plain(paper - points)}..{plain(paper + points)}"


def plain(value: float) -> str:
    """Four digits, or all before the point; never with an exponent of ten for large numbers."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
