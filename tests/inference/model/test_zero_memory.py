"""The pool's memory is zeros from the start, and room in main memory is taken by what is used of it alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from pagoda_inference.model.kv_memory import KvMemory, LayerShape
from pagoda_inference.model.zero_memory import zeros_on_demand
from pagoda_kernels import torch_kernels

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors_are_zeros_of_their_own(dtype: torch.dtype) -> None:
    shapes = [(3, 5), (1,), (2, 7, 3), (4096,)]
    tensors = zeros_on_demand(shapes, dtype)
    assert [(tuple(tensor.shape), tensor.dtype, tensor.is_contiguous()) for tensor in tensors] == [
        (shape, dtype, True) for shape in shapes
    ]
    for number, tensor in enumerate(tensors):
        assert not tensor.any()
        assert tensor.data_ptr() % 64 == 0
        tensor.fill_(number + 1)
    for number, tensor in enumerate(tensors):
        assert bool((tensor == number + 1).all())


def test_the_memory_lives_as_long_as_any_of_its_tensors() -> None:
    tensor = zeros_on_demand([(1024,), (1024,)], torch.float32)[1]
    zeros_on_demand([(1024,)], torch.float32)[0].fill_(1)
    tensor += 1
    assert float(tensor.sum()) == 1024


@linux
def test_a_pool_takes_room_block_by_block() -> None:
    blocks = 1 << 16
    before = resident_bytes()
    memory = KvMemory(
        [LayerShape(2, 64, 64)], total_blocks=blocks, block_size=16, dtype=torch.float32,
        device=torch.device("cpu"), kernels=torch_kernels(),
    )  # fmt: skip
    size = blocks * memory.bytes_per_block
    assert size == 1 << 30
    assert resident_bytes() - before < size // 16
    payload = bytes(range(256)) * (memory.bytes_per_block // 256)
    memory.write_blocks([blocks - 1], [payload])
    assert resident_bytes() - before < size // 16
    assert memory.read_blocks([blocks - 1, 7]) == [payload, bytes(memory.bytes_per_block)]
