"""Several servers of one model, asked the same, one after the other in every round: a slow moment of the machine hits
all.

Nobody is always the first or the last of a round. A machine that is slow stops early, and servers that are slow run in
the first rounds alone; the counts of the results say how many rounds there were.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from bench.daemon import Daemon
from bench.memory import resident_bytes
from bench.peers.peer import PeerFailed, Round
from bench.progress import progress
from bench.results import Results

LEAST_ROUNDS = 2
TIME_BOX_S = 240.0
"""After it and LEAST_ROUNDS, no further round begins."""
SLOW_ROUND_S = 30.0
"""Who takes longer in the last of LEAST_ROUNDS is left out of the rounds after it."""

Work = TypeVar("Work")


class Server(Protocol):
    """Ours or a peer."""

    name: str
    start_s: float

    async def run_round(self, prompts: Sequence[Sequence[int]], outputs: Sequence[int]) -> Round:
        """All prompts at once, each to exactly its number of output tokens."""
        ...

    def resident_bytes(self) -> int:
        """Main memory of its processes."""
        ...


class Ours(Daemon):
    """Our whole daemon, driven over its socket."""

    def __init__(self, *flags: str, name: str = "ours") -> None:
        super().__init__(*flags)
        self.name = name
        self.start_s = 0.0

    async def __aenter__(self) -> Ours:
        begin = time.perf_counter()
        await super().__aenter__()
        self.start_s = time.perf_counter() - begin
        return self

    async def run_round(self, prompts: Sequence[Sequence[int]], outputs: Sequence[int]) -> Round:
        begin = time.perf_counter()
        answers = await self.generate(prompts, outputs)
        return Round(time.perf_counter() - begin, [list(answer.token_ids) for answer in answers])

    def resident_bytes(self) -> int:
        return resident_bytes(self._process.pid)


async def measure(
    results: Results,
    label: str,
    servers: Sequence[Server],
    works: Sequence[Work],
    run: Callable[[Server, Work], Awaitable[float]],
) -> dict[str, list[float]]:
    """By server: ``run`` of each round's work, in order; fewer where a server left out rounds, always the first ones.

    A peer that ends in a round has no more of them, and the results say why.
    """
    values: dict[str, list[float]] = {server.name: [] for server in servers}
    going = list(servers)
    begin = time.perf_counter()
    with results.keeping(label, values):
        for number, work in enumerate(progress(works, label)):
            if number >= LEAST_ROUNDS and time.perf_counter() - begin > TIME_BOX_S:
                break
            slow = []
            for place in range(len(going)):
                server = going[(place + number) % len(going)]
                started = time.perf_counter()
                try:
                    values[server.name].append(await run(server, work))
                except PeerFailed as failure:
                    results.skip(f"{label}.{server.name}", f"not run: {failure}")
                    slow.append(server)
                    continue
                if number + 1 == LEAST_ROUNDS and time.perf_counter() - started > SLOW_ROUND_S:
                    slow.append(server)
            going = [server for server in going if server not in slow or isinstance(server, Ours)]
    return values


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours over theirs, of the rounds that both ran."""
    return [own / other for own, other in zip(ours, theirs, strict=False)]
