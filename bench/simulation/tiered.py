"""The paged system with the engine's own tiers below it: its scheduler decides, and copies end at a virtual time.

Copies run beside computation, one after the other, as the engine's copy thread does them; or, as in the paper's system,
the step waits for those that it began. Nothing is read or written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bench.simulation.cost_model import RooflineCost
from bench.simulation.paged import PagedSystem
from bench.simulation.work import StepWork
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.tiers.copier import Copier, Done, Work
from pagoda_inference.kv.tiers.tiers import Tiers
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.model.backend import Backend
from pagoda_inference.scheduling.swapping import Mode, PreemptionCost

CopySeconds = Callable[[int], float]
"""Time of copying so many blocks one way."""
PROMPT = 512
"""Tokens of the prompt that the rate of computing prompts is taken from."""


class VirtualMemory:
    """Stands where the tiers expect the backend's KV memory: counts blocks instead of copying them."""

    def __init__(self, total_blocks: int, block_size: int, bytes_per_block: int) -> None:
        self.total_blocks = total_blocks
        self.block_size = block_size
        self.bytes_per_block = bytes_per_block
        self.copied = 0

    def read_blocks(self, blocks: Sequence[int]) -> list[bytearray]:
        self.copied += len(blocks)
        return [bytearray() for _ in blocks]

    def write_blocks(self, blocks: Sequence[int], payloads: Sequence[bytearray]) -> None:
        self.copied += len(blocks)


class VirtualCopier(Copier):
    """Jobs end in order, each ``seconds`` of its blocks after it could begin. The caller sets ``now``."""

    def __init__(self, memory: VirtualMemory, seconds: CopySeconds) -> None:
        super().__init__()
        self.now = 0.0
        self.copied = 0
        """Blocks so far."""
        self._memory = memory
        self._seconds = seconds
        self._under_way: deque[tuple[float, Done, BaseException | None]] = deque()
        self._free_at = 0.0

    @property
    def next_end(self) -> float | None:
        """When the first of the jobs under way ends."""
        return self._under_way[0][0] if self._under_way else None

    def submit(self, work: Work, done: Done) -> None:
        before, error = self._memory.copied, None
        try:
            work()
        except Exception as raised:
            error = raised
        blocks = self._memory.copied - before
        took = self._seconds(blocks) if blocks else 0.0
        self.copied += blocks
        self._free_at = max(self._free_at, self.now) + took
        self._under_way.append((self._free_at, done, error))
        self.in_flight += 1

    def poll(self) -> None:
        while self._under_way and self._under_way[0][0] <= self.now:
            _, done, error = self._under_way.popleft()
            self.in_flight -= 1
            done(error)

    def wait(self, timeout_s: float) -> bool:
        self.now = max(self.now, self._free_at)
        return True

    def close(self) -> None:
        self._under_way.clear()


@dataclass(frozen=True)
class HostTier:
    """host_bytes: of the tier. mode: how preempted requests come back. as_paper: each block of each layer is a copy
    begun apart, and the step waits for all of them; else the blocks of a copy are packed on the device and moved at
    once, beside the steps, as the engine does it.
    """

    host_bytes: float
    mode: Mode = "auto"
    as_paper: bool = False

    def copy_s(self, cost: RooflineCost, block_size: int) -> CopySeconds:
        if self.as_paper:
            return lambda blocks: cost.swap_s(blocks, block_size)
        return lambda blocks: cost.packed_swap_s(blocks, block_size)


class TieredSystem(PagedSystem):
    """See PagedSystem. What it decides by are the rates that the cost model gives, as the engine measures its own."""

    def __init__(self, blocks: int, block_size: int, cost: RooflineCost, host: HostTier, **options: Any) -> None:
        block_bytes = block_size * cost.model.kv_bytes_per_token
        memory = VirtualMemory(blocks, block_size, block_bytes)
        copy_s = host.copy_s(cost, block_size)
        self.copier = VirtualCopier(memory, (lambda blocks: 0.0) if host.as_paper else copy_s)
        self._waits, self._waited_for = host.as_paper, 0
        backend = cast("Backend", memory)
        tiers = Tiers(backend, host_bytes=int(host.host_bytes), disk_bytes=0, folder=None, model="", copier=self.copier)
        pool = Pool(blocks, block_size, secret=tiers.secret)
        prompt = StepWork(prompt_tokens=PROMPT, prompt_pairs=PROMPT**2 / 2, prompt_rows=1, block_size=block_size)
        super().__init__(
            blocks,
            block_size,
            pool=pool,
            transfers=Transfers(pool, tiers),
            preemption=PreemptionCost(host.mode, block_bytes, block_bytes / copy_s(1), PROMPT / cost.seconds(prompt)),
            **options,
        )

    @property
    def preemptions(self) -> dict[str, int]:
        """So far, by kind."""
        ledgers = list(self.pool.accounts)
        return {kind: sum(ledger.preemptions[kind] for ledger in ledgers) for kind in ("swap", "recompute")}

    def begin_step(self, now: float) -> StepWork | None:
        self.copier.now = now
        work = super().begin_step(now)
        if work is not None and self._waits:
            work.swapped_blocks = self.copier.copied - self._waited_for
            self._waited_for = self.copier.copied
        return work

    def end_step(self, now: float) -> list[Any]:
        self.copier.now = now
        return super().end_step(now)

    def wakes_at(self) -> float | None:
        """When a copy ends that somebody may wait for."""
        return self.copier.next_end
