"""A trace by what an option calls it: a name of the catalogue, ``law:`` and a workload, or a file."""

from __future__ import annotations

import random
from pathlib import Path

from bench.traces import catalogue, laws, synthetic
from bench.traces.errors import TraceUnknown
from bench.traces.laws import Workload
from bench.traces.request import TracedRequest

LAW = "law:"
LAWS = [f"{LAW}{workload.value}" for workload in Workload]


def named(name: str, traces: Path | None, count: int, rng: random.Random) -> list[TracedRequest]:
    """All requests of a trace, or ``count`` drawn from a law. traces: the folder that names of the catalogue are found
    in. Raises TraceMissing, TraceMalformed, TraceUnknown, OSError.
    """
    if name.startswith(LAW):
        return _drawn(name, count, rng)
    if name not in catalogue.FORMATS:
        if not Path(name).exists():
            names = ", ".join([*catalogue.FORMATS, *LAWS])
            raise TraceUnknown(f"there is no trace {name}: it is no file, no folder and none of {names}")
        return catalogue.read_file(Path(name))
    if traces is None:
        raise TraceUnknown(f"the trace {name} is read from a folder of traces: --traces DIR")
    return catalogue.read(name, traces)


def _drawn(name: str, count: int, rng: random.Random) -> list[TracedRequest]:
    try:
        workload = Workload(name.removeprefix(LAW))
    except ValueError:
        raise TraceUnknown(f"there is no law {name!r}, but {', '.join(LAWS)}") from None
    if workload is Workload.WMT16:
        return synthetic.shared_prefix(count, laws.FIVE_SHOT_PREFIX, rng)
    return synthetic.independent(workload, count, rng)
