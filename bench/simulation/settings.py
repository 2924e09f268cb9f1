"""The serving systems that are compared, and the machines that the paper ran them on (its Table 1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from bench.simulation.architectures import LLAMA_13B, OPT_13B, OPT_66B, OPT_175B, Architecture
from bench.simulation.contiguous import (
    ContiguousSystem,
    RowLimits,
    reserve_exactly,
    reserve_most,
    reserve_power_of_two,
)
from bench.simulation.cost_model import CALIBRATED, ONE_CALL, RooflineCost
from bench.simulation.hardware import A100_40GB, A100_80GB, GIB, Device
from bench.simulation.paged import PagedSystem
from bench.simulation.static_batching import StaticBatchingSystem
from bench.simulation.system import ServingSystem
from bench.simulation.tiered import HostTier, TieredSystem
from bench.traces.laws import Workload

MOST_ROWS = 2048
"""Sequences in a step, of every system that batches by iteration."""
STEP_TOKENS = 2560
"""Tokens in a step, of prompts and of sequences that decode. Both are the defaults of the authors' own server, for
their system and for their Orca alike (SOSP'23 artifact 39, ``cacheflow/master/server.py``)."""
BLOCK = 16


class System(Enum):
    """Names as in results."""

    PAGED = "paged"
    ORACLE = "oracle"
    POW2 = "pow2"
    MAX = "max"
    STATIC = "static"

    @property
    def title(self) -> str:
        return _TITLES[self]


_TITLES = {
    System.PAGED: "Pagoda",
    System.ORACLE: "Orca (Oracle)",
    System.POW2: "Orca (Pow2)",
    System.MAX: "Orca (Max)",
    System.STATIC: "FasterTransformer",
}


@dataclass(frozen=True)
class Setting:
    """A model on ``devices`` devices, with ``kv_bytes`` of memory for KV over all of them.

    batches: sequences of FasterTransformer's batch, by workload; of others as many as the memory has of the longest.
    """

    model: Architecture
    device: Device
    devices: int
    kv_bytes: float
    batches: tuple[tuple[Workload, int], ...] = ()

    @property
    def slots(self) -> int:
        """Tokens whose KV the memory holds."""
        return int(self.kv_bytes // self.model.kv_bytes_per_token)

    def cost(self, system: System = System.PAGED) -> RooflineCost:
        efficiency = ONE_CALL if system is System.STATIC else CALIBRATED
        return RooflineCost(self.model, self.device, self.devices, efficiency)

    def build(self, system: System, workload: Workload | None = None) -> ServingSystem:
        """A new, empty one. workload: that it was configured for."""
        longest = self.model.longest
        if system is System.PAGED:
            return self.paged()
        if system is System.STATIC:
            rows = dict(self.batches).get(workload) if workload else None
            return StaticBatchingSystem(self.slots, longest, rows or self.slots // longest)
        reservation = {
            System.ORACLE: reserve_exactly,
            System.POW2: reserve_power_of_two,
            System.MAX: reserve_most,
        }[system](longest)
        limits = RowLimits(MOST_ROWS, STEP_TOKENS)
        return ContiguousSystem(self.slots, reservation, limits, block_size=BLOCK)

    def paged(self, block_size: int = BLOCK, **options: Any) -> PagedSystem:
        """options: of PagedSystem."""
        return PagedSystem(self.slots // block_size, block_size, **LIMITS, **options)

    def tiered(self, host: HostTier, block_size: int = BLOCK, **options: Any) -> TieredSystem:
        """The same with a tier below. options: of PagedSystem."""
        return TieredSystem(self.slots // block_size, block_size, self.cost(), host, **LIMITS, **options)


LIMITS = {"max_running": MOST_ROWS, "token_budget": STEP_TOKENS}


def _batches(sharegpt: int, alpaca: int) -> tuple[tuple[Workload, int], ...]:
    """The authors' own (SOSP'23 artifact 39, ``ft/run_*.py``): what fitted into FasterTransformer's memory."""
    return (Workload.SHAREGPT, sharegpt), (Workload.ALPACA, alpaca)


SMALL = Setting(OPT_13B, A100_40GB, 1, 12 * GIB, _batches(5, 14))
MIDDLE = Setting(OPT_66B, A100_40GB, 4, 21.3 * GIB, _batches(2, 8))
"""The paper prints 21 GB and 9.7K slots; 9.7K slots are 21.3 GiB."""
LARGE = Setting(OPT_175B, A100_80GB, 8, 264 * GIB, _batches(24, 80))
LLAMA = Setting(LLAMA_13B, A100_40GB, 1, 12 * GIB)
"""The paper's table has no row for it; its shape is OPT-13B's."""
