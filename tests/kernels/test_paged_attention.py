"""Every implementation gives what attention is, written out in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_kernels import Kernels, PagedBatch, cpu_kernels, reference, torch_kernels
from pagoda_kernels.native.library import NativeLibrary
from tests.kernels.paged_case import PagedCase

MIXED = [(1, 1), (1, 50), (17, 17), (5, 40), (64, 70), (1, 16)]
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
PARAMETERS: list[dict[str, Any]] = [
    {},
    {"sliding_window": 1},
    {"sliding_window": 20},
    {"softcap": 1.5},
    {"sinks": torch.linspace(-2, 4, 6)},
    {"sliding_window": 9, "softcap": 3.0, "sinks": torch.linspace(-2, 4, 6)},
]


@pytest.fixture(params=["torch", "native"])
def kernels(request: pytest.FixtureRequest, build_home: Path) -> Kernels:
    if request.param == "torch":
        return torch_kernels()
    kernels = cpu_kernels(build_home)
    if kernels.native is None:
        pytest.skip("no C++ compiler")
    return kernels


@pytest.mark.parametrize("parameters", PARAMETERS, ids=lambda p: "+".join(p) or "plain")
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_mixed_chunks_and_decodes(kernels: Kernels, dtype: torch.dtype, parameters: dict[str, Any]) -> None:
    case = PagedCase.make(MIXED, dtype=dtype)
    output = kernels.paged_attention(case.query, case.key_pool, case.value_pool, case.batch, scaling=0.3, **parameters)
    assert output.dtype == dtype
    assert float((output.double() - case.plain(scaling=0.3, **parameters)).abs().max()) < TOLERANCE[dtype]


@pytest.mark.parametrize("block_size", [1, 5, 16, 32, 100])
@pytest.mark.parametrize(("head_size", "value_size"), [(8, 8), (20, 12), (64, 64), (80, 96)])
def test_blocks_and_heads_of_any_size(kernels: Kernels, block_size: int, head_size: int, value_size: int) -> None:
    case = PagedCase.make(
        [(1, 30), (9, 33)], block_size=block_size, head_size=head_size, value_size=value_size, kv_heads=3
    )
    output = kernels.paged_attention(case.query, case.key_pool, case.value_pool, case.batch, scaling=0.2)
    assert float((output.double() - case.plain(scaling=0.2)).abs().max()) < 5e-6


def test_half_precision_takes_the_torch_way(kernels: Kernels) -> None:
    case = PagedCase.make(MIXED, dtype=torch.float16)
    output = kernels.paged_attention(case.query, case.key_pool, case.value_pool, case.batch, scaling=0.3)
    assert float((output.double() - case.plain(scaling=0.3)).abs().max()) < 2e-3


def test_a_strided_query_is_read_by_its_strides(kernels: Kernels) -> None:
    case = PagedCase.make(MIXED)
    strided = case.query.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous()
    outputs = [
        kernels.paged_attention(query, case.key_pool, case.value_pool, case.batch, scaling=0.3)
        for query in (case.query, strided)
    ]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_keys_and_values_are_written_to_their_slots_alone(kernels: Kernels, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 7, 20).to(dtype).transpose(0, 1), torch.randn(7, 2, 12).to(dtype)
    slots = torch.tensor([3, 4, 21, 22, 0, 39, 17])
    pools = [torch.full((10, 2, 20, 4), 7.0, dtype=dtype), torch.full((10, 2, 4, 12), 7.0, dtype=dtype)]
    kernels.write_kv(keys, values, *pools, slots)
    for token, slot in enumerate(slots.tolist()):
        assert torch.equal(pools[0][slot // 4, :, :, slot % 4], keys[token])
        assert torch.equal(pools[1][slot // 4, :, slot % 4], values[token])
        pools[0][slot // 4, :, :, slot % 4], pools[1][slot // 4, :, slot % 4] = 7.0, 7.0
    assert all(bool((pool == 7.0).all()) for pool in pools)


def test_blocks_are_copied_in_every_pool_in_order(kernels: Kernels) -> None:
    pools = [torch.arange(5.0)[:, None].repeat(1, 3), torch.arange(5)[:, None] * 10]
    kernels.copy_blocks(pools, [(0, 3), (3, 4), (1, 0)])
    assert pools[0][:, 0].tolist() == [1, 1, 2, 0, 0]
    assert pools[1][:, 0].tolist() == [10, 10, 20, 0, 0]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("window", [None, 21])
@pytest.mark.parametrize("block_size", [5, 16, 80])
def test_native_results_do_not_depend_on_batch_or_chunking(
    native: NativeLibrary, dtype: torch.dtype, window: int | None, block_size: int
) -> None:
    lengths = [*MIXED, (40, 170)]
    case = PagedCase.make(lengths, dtype=dtype, block_size=block_size)
    together = native.paged_attention(
        case.query, case.key_pool, case.value_pool, case.batch, scaling=0.3, sliding_window=window
    )
    for sequence, (length, context) in enumerate(lengths):
        start = int(case.batch.query_starts[sequence])
        for token in range(length):  # each as a decode of its own
            row = start + token
            alone = PagedBatch(
                torch.tensor([0, 1], dtype=torch.int32),
                torch.tensor([context - length + token + 1], dtype=torch.int32),
                case.batch.block_tables[sequence : sequence + 1].contiguous(),
                case.batch.slots[row : row + 1],
            )
            output = native.paged_attention(
                case.query[row : row + 1], case.key_pool, case.value_pool, alone, scaling=0.3, sliding_window=window
            )
            assert torch.equal(output[0], together[row])


def test_numbers_that_are_none_stay_in_their_sequence(kernels: Kernels) -> None:
    case = PagedCase.make([(4, 20), (4, 20)])
    block = int(case.batch.block_tables[0, 0])
    case.key_pool[block, 0, 0, 3] = torch.nan
    output = kernels.paged_attention(case.query, case.key_pool, case.value_pool, case.batch, scaling=0.3)
    assert output[:4].isnan().any()
    assert output[4:].isfinite().all()


def test_the_reference_reads_no_more_of_a_table_than_the_context() -> None:
    case = PagedCase.make([(1, 20)])
    wide = torch.cat([case.batch.block_tables, torch.zeros(1, 3, dtype=torch.int32)], dim=1)
    batch = PagedBatch(case.batch.query_starts, case.batch.context_lengths, wide, case.batch.slots)
    outputs = [
        reference.paged_attention(case.query, case.key_pool, case.value_pool, each, scaling=0.3)
        for each in (case.batch, batch)
    ]
    assert torch.equal(*outputs)
