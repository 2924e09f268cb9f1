"""The serving systems that are compared, and the machines that the paper ran them on (its Table 1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bench.simulation.architectures import LLAMA_13B, OPT_13B, OPT_66B, OPT_175B, Architecture
from bench.simulation.contiguous import ContiguousSystem, reserve_exactly, reserve_most, reserve_power_of_two
from bench.simulation.cost_model import CALIBRATED, Efficiency, RooflineCost
from bench.simulation.hardware import A100_40GB, A100_80GB, GIB, Device
from bench.simulation.paged import PagedSystem
from bench.simulation.static_batching import StaticBatchingSystem
from bench.simulation.system import ServingSystem

MAX_ROWS = 256
"""Sequences in a step, of every system that batches by iteration."""
MOST_PROMPT_TOKENS = 2048
"""Prompt tokens in a step: one longest prompt at least."""


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
    """A model on ``devices`` devices, with ``kv_bytes`` of memory for KV over all of them."""

    model: Architecture
    device: Device
    devices: int
    kv_bytes: float

    @property
    def slots(self) -> int:
        """Tokens whose KV the memory holds."""
        return int(self.kv_bytes // self.model.kv_bytes_per_token)

    def cost(self, efficiency: Efficiency = CALIBRATED) -> RooflineCost:
        return RooflineCost(self.model, self.device, self.devices, efficiency)

    def build(self, system: System, *, block_size: int = 16, keep: bool = False) -> ServingSystem:
        """A new, empty one. block_size, keep: of the paged one."""
        longest = self.model.longest
        if system is System.PAGED:
            return PagedSystem(
                self.slots // block_size,
                block_size,
                keep=keep,
                max_running=MAX_ROWS,
                token_budget=MOST_PROMPT_TOKENS + MAX_ROWS,
            )
        if system is System.STATIC:
            return StaticBatchingSystem(self.slots, longest)
        reservation = {
            System.ORACLE: reserve_exactly,
            System.POW2: reserve_power_of_two,
            System.MAX: reserve_most,
        }[system](longest)
        return ContiguousSystem(self.slots, reservation, max_rows=MAX_ROWS, most_prompt_tokens=MOST_PROMPT_TOKENS)


SMALL = Setting(OPT_13B, A100_40GB, 1, 12 * GIB)
MIDDLE = Setting(OPT_66B, A100_40GB, 4, 21.3 * GIB)
"""The paper prints 21 GB and 9.7K slots; 9.7K slots are 21.3 GiB."""
LARGE = Setting(OPT_175B, A100_80GB, 8, 264 * GIB)
LLAMA = Setting(LLAMA_13B, A100_40GB, 1, 12 * GIB)
"""The paper's table has no row for it; its shape is OPT-13B's."""
