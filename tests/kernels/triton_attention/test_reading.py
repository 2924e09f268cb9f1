"""What Triton's attention reads: its sequence's KV once, and nothing else, wherever it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_kernels import PagedBatch
from pagoda_kernels.triton_attention import paged_attention
from pagoda_kernels.triton_attention.launch import Cut
from pagoda_kernels.triton_attention.tiling import Tiling
from tests.kernels.interpreted import interpreted
from tests.kernels.traffic import TensorTraffic, measured
from tests.kernels.triton_attention.attention_case import AttentionCase

NARROW = Tiling(rows=16, tokens=16, warps=4, stages=2)
CUTS = {"decode": Cut(decode=NARROW), "in parts": Cut(part=32, decode=NARROW), "prefill": Cut(limit=0, prefill=NARROW)}


def traffic_of(case: AttentionCase, **parameters: Any) -> dict[str, TensorTraffic]:
    inner = case.case
    return measured(
        paged_attention, inner.query, inner.key_pool, inner.value_pool, inner.batch, scaling=0.1, **parameters
    )


def kv_share(case: AttentionCase, traffic: dict[str, TensorTraffic], contexts: int) -> float:
    """Bytes of KV that programs load, in memory's sectors, per byte that ``contexts`` tokens have."""
    kv_heads, _, value_size = case.case.value_pool.shape[1:]
    head_size, number = case.case.key_pool.shape[2], case.case.key_pool.element_size()
    loaded = traffic["key_pool"].loaded.moved + traffic["value_pool"].loaded.moved
    assert loaded <= traffic["key_pool"].loaded.accessed + traffic["value_pool"].loaded.accessed
    return loaded / (contexts * kv_heads * (head_size + value_size) * number)


@pytest.mark.parametrize(
    "shape",
    [
        {"query_heads": 8, "head_size": 128, "value_size": 128, "dtype": torch.bfloat16},
        {"query_heads": 2, "head_size": 80, "value_size": 80, "dtype": torch.float16, "block_size": 32},
        {"query_heads": 14, "head_size": 64, "value_size": 64, "dtype": torch.float16, "float8": True},
    ],
    ids=["grouped", "one query head a KV head", "float8"],
)
@pytest.mark.parametrize("cut", [Cut(), Cut(part=64)], ids=["whole", "in parts"])
def test_a_decode_reads_its_kv_once(shape: dict[str, Any], cut: Cut) -> None:
    case = AttentionCase.make([(1, 192), (1, 64)], **shape)
    assert 1 <= kv_share(case, traffic_of(case, cut=cut, **case.scales), 192 + 64) <= 1.05


def test_drafts_share_what_is_read() -> None:
    case = AttentionCase.make([(8, 192)], dtype=torch.float16, head_size=64, value_size=64)
    assert 1 <= kv_share(case, traffic_of(case), 192) <= 1.05


@pytest.mark.parametrize("cut", CUTS)
def test_blocks_before_the_window_are_not_read(cut: str) -> None:
    case = AttentionCase.make([(1, 200)], dtype=torch.float16)
    share = kv_share(case, traffic_of(case, sliding_window=48, cut=CUTS[cut]), 200)
    assert share == 48 / 200


@pytest.mark.parametrize("cut", CUTS)
def test_blocks_before_the_window_may_be_gone(cut: str) -> None:
    case = AttentionCase.make([(3, 90)], block_size=8)
    expected = case.triton(sliding_window=20, cut=CUTS[cut])
    case.case.batch.block_tables[0, : (90 - 3 - 19) // 8] = 2**31 - 1
    assert torch.equal(case.triton(sliding_window=20, cut=CUTS[cut]), expected)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("float8", [False, True], ids=["float32", "float8"])
def test_what_lies_behind_a_context_is_not_read(float8: bool, cut: str) -> None:
    """A case's unused slots are not numbers and its tables' tails no blocks; what follows in the tensor is seen too."""
    case = AttentionCase.make([(1, 33), (2, 34), (1, 1)], float8=float8)
    output = case.triton(cut=CUTS[cut])
    assert output.isfinite().all()
    torch.testing.assert_close(output, case.reference(), rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("cut", CUTS)
def test_numbers_that_are_none_stay_in_their_sequence(cut: str) -> None:
    case = AttentionCase.make([(2, 20), (2, 20)])
    case.case.key_pool[int(case.case.batch.block_tables[0, 0]), 0, 0, 3] = torch.nan
    output = case.triton(cut=CUTS[cut])
    assert output[:2, :3].isnan().all()
    assert output[:2, 3:].isfinite().all()
    assert output[2:].isfinite().all()


@pytest.mark.parametrize("limit", [1, 0], ids=["decode", "prefill"])
def test_a_pool_may_hold_more_numbers_than_32_bits_count(limit: int, tmp_path: Path) -> None:
    near, far = interpreted(attention_far_away)(limit, tmp_path)
    assert torch.equal(near, far)
    assert near.isfinite().all()
    assert float(near.abs().max()) > 0.1


def attention_far_away(limit: int, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to the same KV in blocks 0 and 1, and in blocks whose offsets pass 2**31 and 2**32.

    The pools are files in ``folder`` that have memory only where something is written.
    """
    block_size, head_size, block_stride = 4, 16, 2**26
    far_blocks = [33, 70]  # 33 x 2**26 > 2**31, 70 x 2**26 > 2**32
    numbers = (far_blocks[-1] + 1) * block_stride
    pools = []
    for name in ("keys", "values"):
        memory = torch.from_file(str(folder / name), shared=True, size=numbers, dtype=torch.uint8)
        memory = memory.view(torch.float8_e4m3fn)
        shape, strides = (far_blocks[-1] + 1, 1, block_size, head_size), (block_stride, head_size, head_size, 1)
        pools.append(memory.as_strided(shape, strides))
    torch.manual_seed(0)
    for pool in pools:
        for block, far in enumerate(far_blocks):
            pool[block] = torch.randn(1, block_size, head_size).to(pool.dtype)
            pool[far] = pool[block]
    query = torch.randn(1, 2, head_size)
    outputs = []
    for blocks in ([0, 1], far_blocks):
        batch = PagedBatch(
            torch.tensor([0, 1], dtype=torch.int32),
            torch.tensor([7], dtype=torch.int32),
            torch.tensor([blocks], dtype=torch.int32),
            torch.tensor([0]),
        )
        cut = Cut(limit=limit, decode=NARROW, prefill=NARROW)
        outputs.append(paged_attention(query, pools[0].transpose(2, 3), pools[1], batch, scaling=0.5, cut=cut))
    return outputs[0], outputs[1]
