"""Seconds of a step, from what it computes and moves: a roofline with a share of each peak, and overheads per step.

A step reads the weights once and the KV of the sequences that decode; it multiplies every token with the weights. It
takes the longer of reading the weights and multiplying, then attention, then what ranks tell each other, and beside
all of it what the host does for the step and for each sequence in it. Swaps and copies are waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bench.simulation.architectures import Architecture
from bench.simulation.hardware import Device
from bench.simulation.work import StepWork


class StepCost(Protocol):
    """What the simulation asks of a cost model."""

    def seconds(self, work: StepWork) -> float:
        """Duration of a step."""


@dataclass(frozen=True)
class Efficiency:
    """Shares of the device's peaks that programs reach, and times that no peak explains.

    weights, kv, arithmetic: of memory bandwidth for weights and for KV, and of FLOP/s. link, host: of the bandwidth
    between devices and to the host. step_s, row_s: the host's work for a step, and for each sequence in it. sibling:
    share of row_s that a further sequence of the same request takes; the paper's system samples request by request and
    waits for the device once for its tokens, and once for the log probability of each. reduce_s: latency of one
    all-reduce. block_s: what it costs to find a block of KV in one layer and to begin to read it. transfer_s: time to
    begin one copy between host and device.
    """

    weights: float = 0.85
    kv: float = 0.7
    arithmetic: float = 0.55
    link: float = 0.6
    host: float = 0.8
    step_s: float = 4e-3
    row_s: float = 0.2635e-3
    sibling: float = 0.5
    reduce_s: float = 15e-6
    block_s: float = 69e-9
    transfer_s: float = 6e-6


CALIBRATED = Efficiency()
"""Calibrated once on the paper's absolute points: see docs/paper.md."""


@dataclass(frozen=True)
class RooflineCost:
    """The step of a model on ``devices`` equal devices, its tensors divided among them (tensor parallel)."""

    model: Architecture
    device: Device
    devices: int = 1
    efficiency: Efficiency = CALIBRATED

    def seconds(self, work: StepWork) -> float:
        return (
            self.host_s(work)
            + max(self.weights_s, self.multiply_s(work))
            + self.attention_s(work)
            + self.reduce_s(work)
            + self.moving_s(work)
        )

    def host_s(self, work: StepWork) -> float:
        """What the host does: choosing, preparing inputs, sampling."""
        rows = work.rows + work.prompt_rows - (1 - self.efficiency.sibling) * work.siblings
        return self.efficiency.step_s + self.efficiency.row_s * rows

    @property
    def weights_s(self) -> float:
        """Reading the weights once."""
        return self.model.weight_bytes / (self.devices * self.device.memory_bytes_per_s * self.efficiency.weights)

    def multiply_s(self, work: StepWork) -> float:
        """Every token with every weight: 2 FLOPs each."""
        flops = 2 * self.model.parameters * (work.prompt_tokens + work.rows)
        return flops / (self.devices * self.device.flops_per_s * self.efficiency.arithmetic)

    def attention_s(self, work: StepWork) -> float:
        """KV read by those who decode, in blocks; arithmetic of the prompts: 4 FLOPs a value of each pair."""
        read = work.context * self.model.kv_bytes_per_token
        seconds = read / (self.devices * self.device.memory_bytes_per_s * self.efficiency.kv)
        if work.block_size:
            blocks = work.context / work.block_size * self.model.layers
            seconds += blocks * self.efficiency.block_s / self.devices
        flops = 4 * work.prompt_pairs * self.model.hidden * self.model.layers
        return seconds + flops / (self.devices * self.device.flops_per_s * self.efficiency.arithmetic)

    def reduce_s(self, work: StepWork) -> float:
        """Two all-reduces a layer, each of the hidden values of all tokens, around a ring."""
        if self.devices == 1:
            return 0.0
        tokens = work.prompt_tokens + work.rows
        sent = 2 * (self.devices - 1) / self.devices * tokens * self.model.hidden * self.model.bytes_per_value
        one = self.efficiency.reduce_s + sent / (self.device.link_bytes_per_s * self.efficiency.link)
        return 2 * self.model.layers * one

    def moving_s(self, work: StepWork) -> float:
        """Copies inside the device read and write; swapped blocks are copied one by one, keys and values of a layer
        apart, as the paper's implementation does.
        """
        seconds = 0.0
        if work.copied_tokens:
            moved = 2 * work.copied_tokens * self.model.kv_bytes_per_token
            seconds += moved / (self.devices * self.device.memory_bytes_per_s * self.efficiency.kv)
        if work.swapped_blocks:
            seconds += self.swap_s(work.swapped_blocks, work.block_size)
        return seconds

    def swap_s(self, blocks: int, block_size: int) -> float:
        """Copying so many blocks one way between a device and the host."""
        moved = blocks * block_size * self.model.kv_bytes_per_token / self.devices
        begun = blocks * 2 * self.model.layers * self.efficiency.transfer_s
        return begun + moved / (self.device.host_bytes_per_s * self.efficiency.host)

    def packed_swap_s(self, blocks: int, block_size: int) -> float:
        """The same where the blocks are packed on the device first, and moved by one copy."""
        moved = blocks * block_size * self.model.kv_bytes_per_token / self.devices
        packed = 2 * moved / (self.device.memory_bytes_per_s * self.efficiency.kv)
        return packed + self.efficiency.transfer_s + moved / (self.device.host_bytes_per_s * self.efficiency.host)
