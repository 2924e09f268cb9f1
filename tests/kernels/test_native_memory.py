"""Weights lie one after the other in large pages, and none writes into another."""

from __future__ import annotations

import torch

from pagoda_kernels.native.memory import WeightMemory


def test_tensors_of_any_shape_and_format_lie_apart() -> None:
    memory = WeightMemory()
    shapes = [((3, 5), torch.float32), ((7,), torch.uint8), ((2, 2, 3), torch.bfloat16), ((0, 4), torch.float32)] * 3
    tensors = [memory.empty(shape, dtype) for shape, dtype in shapes]
    for value, tensor in enumerate(tensors):
        tensor.fill_(value)
    for value, (tensor, (shape, dtype)) in enumerate(zip(tensors, shapes, strict=True)):
        assert tensor.shape == shape
        assert tensor.dtype == dtype
        assert bool((tensor == value).all())
        assert tensor.numel() == 0 or tensor.data_ptr() % 64 == 0


def test_a_tensor_larger_than_a_chunk_and_one_that_outlives_its_memory() -> None:
    memory = WeightMemory()
    large = memory.empty((65 << 20,), torch.uint8)
    large[-1] = 9
    small = memory.empty((4,), torch.float32).fill_(2.5)
    del memory
    assert int(large[-1]) == 9
    assert small.tolist() == [2.5] * 4
