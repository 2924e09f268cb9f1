"""The count of bytes is right for kernels whose traffic is known, and what they take of a GPU is reported."""

from __future__ import annotations

import pytest
import torch
import triton
from triton import language as tl

from tests.kernels.ahead_of_time import ARCHITECTURES, compile_ahead
from tests.kernels.traffic import measured


@triton.jit
def double_kernel(source, target, size, stride, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < size
    value = tl.load(source + lanes * stride, mask=inside)
    tl.store(target + lanes, value + tl.load(source), mask=inside)


def double(source: torch.Tensor, size: int, stride: int) -> torch.Tensor:
    target = torch.zeros(size, dtype=source.dtype)
    double_kernel[(triton.cdiv(size, 16),)](source, target, size, stride, BLOCK=16)
    return target


def test_contiguous_rows_move_their_bytes_once_and_masked_lanes_count_nowhere() -> None:
    source = torch.zeros(128)  # of 64-byte alignment, as every torch tensor
    traffic = measured(double, source, 40, 1)
    assert traffic["result"].stored.moved == traffic["result"].stored.accessed == 40 * 4
    assert traffic["source"].loaded.distinct == 40 * 4
    # Each of 3 programs loads the first element, too: the first one has its sector already.
    assert traffic["source"].loaded.accessed == 40 * 4 + 3 * 4
    assert traffic["source"].loaded.moved == 40 * 4 + 2 * 32
    assert traffic["source"].stored.accessed == traffic["other"].loaded.accessed == 0


def test_a_stride_moves_the_sectors_between() -> None:
    traffic = measured(double, torch.zeros(1024, dtype=torch.float16), 32, 16)
    assert traffic["source"].loaded.moved == 33 * 32
    assert traffic["source"].loaded.distinct == 32 * 2


@triton.jit
def centre_kernel(source, target, ROWS: tl.constexpr):
    lanes = tl.arange(0, ROWS)[:, None] * 64 + tl.arange(0, 64)[None, :]
    value = tl.load(source + lanes)
    tl.store(target + lanes, value - tl.sum(value, axis=0)[None, :])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_resources_grow_with_the_work_and_spills_are_seen(architecture: int) -> None:
    signature = {"source": "*fp32:16", "target": "*fp32:16"}
    small = compile_ahead(centre_kernel, architecture, signature, {"ROWS": 16})
    large = compile_ahead(centre_kernel, architecture, signature, {"ROWS": 128}, num_warps=1)
    assert small.spilled_bytes == 0 < small.registers < large.registers
    assert large.spilled_bytes > 0
    assert small.shared_bytes > 0 == large.shared_bytes  # one warp sums without it
