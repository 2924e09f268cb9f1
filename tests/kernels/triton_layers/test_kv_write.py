"""KV is written where the slots say, as the reference writes it, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda_kernels import reference
from pagoda_kernels.triton_layers.kv_write import write_kv
from tests.kernels.interpreted import interpreted
from tests.kernels.traffic import measured

TOLERANCE = {torch.float32: 0.0, torch.float16: 0.0, torch.bfloat16: 2**-7, torch.float8_e4m3fn: 0.0}
"""The interpreter cuts float32 to bfloat16, a GPU rounds it."""


def pools(
    blocks: int, kv_heads: int, sizes: tuple[int, int], block_size: int, dtype: torch.dtype, *, transposed: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Zeros; ``transposed``: the key pool's memory is [blocks, kv_heads, block_size, head_size], as on GPUs."""
    shape = (blocks, kv_heads, block_size, sizes[0]) if transposed else (blocks, kv_heads, sizes[0], block_size)
    keys = torch.zeros(shape, dtype=dtype)
    return keys.transpose(2, 3) if transposed else keys, torch.zeros(
        blocks, kv_heads, block_size, sizes[1], dtype=dtype
    )


@settings(max_examples=25)
@given(
    tokens=st.integers(0, 5),
    kv_heads=st.integers(1, 5),
    sizes=st.sampled_from([(16, 16), (80, 64), (6, 9), (256, 256)]),
    block_size=st.sampled_from([1, 8, 13, 16]),
    dtypes=st.sampled_from(
        [
            (torch.float32, torch.float32),
            (torch.bfloat16, torch.bfloat16),
            (torch.float16, torch.float16),
            (torch.float32, torch.bfloat16),
            (torch.float16, torch.float8_e4m3fn),
            (torch.float32, torch.float8_e4m3fn),
        ]
    ),
    scaled=st.booleans(),
    transposed=st.booleans(),
    strided=st.booleans(),
    seed=st.integers(0, 999),
)
def test_it_writes_what_the_reference_writes(
    tokens, kv_heads, sizes, block_size, dtypes, scaled, transposed, strided, seed
) -> None:
    torch.manual_seed(seed)
    blocks = 5  # a slot for each of the tokens, whatever the size of a block
    step = torch.randn(tokens, kv_heads, sum(sizes)) * 100
    keys, values = (part.to(dtypes[0]) for part in step.split(sizes, dim=-1))
    if not strided:
        keys, values = keys.contiguous(), values.contiguous()
    slots = torch.randperm(blocks * block_size)[:tokens]
    slots[torch.rand(len(slots)) < 0.2] = -1
    scales = {name: torch.rand(kv_heads) + 0.1 if scaled else None for name in ("key_scale", "value_scale")}
    written, expected = (pools(blocks, kv_heads, sizes, block_size, dtypes[1], transposed=transposed) for _ in range(2))
    interpreted(write_kv)(keys, values, *written, slots, **scales)
    reference.write_kv(keys, values, *expected, slots, **scales)
    for ours, theirs in zip(written, expected, strict=True):
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=TOLERANCE[dtypes[1]], atol=0)


def test_every_kind_of_number_becomes_the_nearest_float8() -> None:
    """All 65,536 of float16, and what lies just beside the middle between two of float8."""
    halves = torch.arange(65536).to(torch.uint16).view(torch.float16).float()
    codes = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).float()
    codes = codes[codes.isfinite()].sort().values
    middles = (codes[1:] + codes[:-1]) / 2
    numbers = torch.cat([halves, middles, *(torch.nextafter(middles, torch.tensor(side)) for side in (-1e3, 1e3))])
    numbers = torch.nn.functional.pad(numbers, (0, -len(numbers) % 1024)).view(-1, 1, 1024)
    slots = torch.arange(len(numbers))
    written, expected = (
        pools(len(numbers), 1, (1024, 1024), 1, torch.float8_e4m3fn, transposed=True) for _ in range(2)
    )
    interpreted(write_kv)(numbers, numbers, *written, slots)
    reference.write_kv(numbers, numbers, *expected, slots)
    broken = numbers.isnan()
    ours, theirs = (pool[1].view_as(numbers) for pool in (written, expected))
    assert torch.equal(ours.view(torch.uint8)[~broken], theirs.view(torch.uint8)[~broken])
    assert ours.float()[broken].isnan().all()


def far_apart(block_stride: int) -> list[torch.Tensor]:
    """What block 3 holds of a token, in a pool of which only that block is ever touched."""
    size, block = 16, 3
    memory = torch.empty(block * block_stride + 2 * size, dtype=torch.float16)
    strides = (block_stride, size, 1, 1)
    key_pool = memory.as_strided((block + 1, 1, size, 1), strides)
    value_pool = memory[size:].as_strided((block + 1, 1, 1, size), strides)
    keys = torch.arange(2.0 * size).half().view(2, 1, 1, size)
    write_kv(*keys, key_pool, value_pool, torch.tensor([block]))
    return [key_pool[block].flatten().clone(), value_pool[block].flatten().clone()]


def test_a_pool_may_have_more_numbers_than_an_int32_counts() -> None:
    key, value = interpreted(far_apart)(2**30 + 64)
    assert [*key.tolist(), *value.tolist()] == list(range(32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_it_moves_no_more_than_what_it_writes(dtype: torch.dtype) -> None:
    tokens, kv_heads, size, block_size = 8, 8, 128, 16
    keys = torch.randn(tokens, kv_heads, size).bfloat16()
    key_pool, value_pool = pools(4, kv_heads, (size, size), block_size, dtype, transposed=True)
    slots = torch.randperm(4 * block_size)[:tokens]
    traffic = measured(write_kv, keys, keys.clone(), key_pool, value_pool, slots)
    for name in ("keys", "values"):
        assert traffic[name].loaded.moved <= 1.05 * keys.nbytes
    for name in ("key_pool", "value_pool"):
        assert traffic[name].stored.moved <= 1.05 * keys.numel() * dtype.itemsize
    assert traffic["other"].loaded.accessed == traffic["other"].stored.accessed == 0


def test_the_reference_layout_of_a_cpu_costs_a_sector_a_number() -> None:
    """Why a GPU's key pool has a token's numbers side by side."""
    keys = torch.randn(2, 1, 128).bfloat16()
    key_pool, value_pool = pools(4, 1, (128, 128), 16, torch.bfloat16, transposed=False)
    traffic = measured(write_kv, keys, keys.clone(), key_pool, value_pool, torch.tensor([3, 40]))
    assert traffic["key_pool"].stored.moved == 16 * keys.nbytes
