"""The last pool reports of every engine, as this web process saw them.

Written on the server's loop, read by views in threads: every update replaces one immutable value.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from pagoda_inference.protocol import PoolReport

HISTORY = 120
"""Reports kept per engine: two minutes at 1 Hz."""


@dataclass(slots=True)
class _Engine:
    reachable: bool = False
    received: float = 0.0
    history: deque[PoolReport] = field(default_factory=lambda: deque(maxlen=HISTORY))


_engines: dict[str, _Engine] = {}


def remember(address: str, report: PoolReport) -> None:
    """Store a report; a new instance of the engine starts a new history."""
    engine = _engines.setdefault(address, _Engine())
    if engine.history and engine.history[-1].instance != report.instance:
        engine.history.clear()
    engine.history.append(report)
    engine.received = time.monotonic()
    engine.reachable = True


def latest(address: str) -> PoolReport | None:
    """The last report, however old; ``is_reachable`` says whether more are coming."""
    engine = _engines.get(address)
    return engine.history[-1] if engine and engine.history else None


def history(address: str) -> list[PoolReport]:
    """Up to HISTORY reports of the engine's present instance, oldest first."""
    engine = _engines.get(address)
    return list(engine.history) if engine else []


def age_s(address: str) -> float | None:
    """Seconds since the last report arrived."""
    engine = _engines.get(address)
    return time.monotonic() - engine.received if engine and engine.history else None


def is_reachable(address: str) -> bool:
    engine = _engines.get(address)
    return engine is not None and engine.reachable


def mark_reachable(address: str) -> None:
    _engines.setdefault(address, _Engine()).reachable = True


def mark_unreachable(address: str) -> None:
    _engines.setdefault(address, _Engine()).reachable = False


def forget_all() -> None:
    _engines.clear()
