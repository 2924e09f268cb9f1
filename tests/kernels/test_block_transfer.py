"""Whole blocks leave the pools and come back bit for bit, and nobody else's block changes."""

from __future__ import annotations

import pytest
import torch

from pagoda_inference.model.kv_memory import KvMemory, LayerShape
from pagoda_kernels import Kernels, cpu_kernels, torch_kernels

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
LAYERS = [LayerShape(2, 8, 12), LayerShape(1, 4, 4, sliding_window=8)]


@pytest.fixture(params=["torch", "native"])
def kernels(request: pytest.FixtureRequest, build_home) -> Kernels:
    kernels = torch_kernels() if request.param == "torch" else cpu_kernels(build_home)
    if kernels.name != request.param:
        pytest.skip("no C++ compiler")
    return kernels


def memory_of(kernels: Kernels, dtype: torch.dtype, *, filled: bool = True) -> KvMemory:
    """A pool of 6 blocks, of random bits: infinities and every kind of NaN among them."""
    memory = KvMemory(
        LAYERS, total_blocks=6, block_size=4, dtype=dtype, device=torch.device("cpu"), kernels=kernels
    )  # fmt: skip
    if filled:
        torch.manual_seed(1)
        for pool in (*memory.keys, *memory.values):
            bits = pool.view(torch.uint8)
            bits.copy_(torch.randint(0, 256, bits.shape, dtype=torch.uint8))
    return memory


def bits(memory: KvMemory, block: int) -> list[bytes]:
    """The block's bytes, layer after layer, keys then values."""
    pools = [pool for layer in zip(memory.keys, memory.values, strict=True) for pool in layer]
    return [pool[block].contiguous().view(torch.uint8).numpy().tobytes() for pool in pools]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_payload_has_layers_in_order_keys_then_values(kernels: Kernels, dtype: torch.dtype) -> None:
    memory = memory_of(kernels, dtype)
    for block, payload in zip([5, 0], memory.read_blocks([5, 0]), strict=True):
        assert len(payload) == memory.bytes_per_block
        assert payload == b"".join(bits(memory, block))


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_come_back_bit_for_bit_and_a_rivals_are_untouched(kernels: Kernels, dtype: torch.dtype) -> None:
    memory, other = memory_of(kernels, dtype), memory_of(kernels, dtype)
    first, second = memory.read_blocks([3, 1])
    memory.write_blocks([0, 4], [bytes(first), memoryview(second)])
    assert [bits(memory, block) for block in range(6)] == [bits(other, block) for block in (3, 1, 2, 3, 1, 5)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_native_and_torch_exchange_payloads(kernels: Kernels, dtype: torch.dtype) -> None:
    source, sink = memory_of(kernels, dtype), memory_of(torch_kernels(), dtype, filled=False)
    sink.write_blocks(range(6), source.read_blocks(range(6)))
    assert [bits(sink, block) for block in range(6)] == [bits(source, block) for block in range(6)]


def test_no_block_is_no_work(kernels: Kernels) -> None:
    memory = memory_of(kernels, torch.float32)
    assert memory.read_blocks([]) == []
    memory.write_blocks([], [])


@pytest.mark.parametrize("block", [-1, 6])
def test_a_block_outside_the_pool_is_refused(kernels: Kernels, block: int) -> None:
    memory = memory_of(kernels, torch.float32)
    with pytest.raises(IndexError):
        memory.read_blocks([0, block])
    with pytest.raises(IndexError):
        memory.write_blocks([block], [bytes(memory.bytes_per_block)])


def test_payloads_of_another_length_are_refused_and_nothing_is_written(kernels: Kernels) -> None:
    memory, other = memory_of(kernels, torch.float32), memory_of(kernels, torch.float32)
    good = bytes(memory.bytes_per_block)
    for blocks, payloads in [([0, 1], [good, good[:-1]]), ([0, 1], [good]), ([0], [good + b"\0"])]:
        with pytest.raises(ValueError, match="payloads of"):
            memory.write_blocks(blocks, payloads)
    assert [bits(memory, block) for block in range(6)] == [bits(other, block) for block in range(6)]
