"""What one set of kernels may be asked, every set on a CPU honours: nothing of the common signature is passed over."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_kernels import Kernels, cpu_kernels, gpu_kernels, reference
from tests.kernels.paged_case import PagedCase

MIXED = [(1, 1), (1, 50), (17, 17), (5, 40)]
OPTIONS: dict[str, dict[str, Any]] = {
    "alibi": {"alibi_slopes": torch.linspace(0.1, 2, 6)},
    "alibi with a window": {"alibi_slopes": torch.linspace(0.1, 2, 6), "sliding_window": 9, "softcap": 2.0},
    "key scale": {"key_scale": torch.tensor([0.5, 3.0])},
    "value scale": {"value_scale": torch.tensor([0.5, 3.0])},
}


@pytest.fixture
def native(build_home: Path) -> Kernels:
    kernels = cpu_kernels(build_home)
    if kernels.native is None:
        pytest.skip("no C++ compiler")
    return kernels


def written(write_kv: Any, pool_dtype: torch.dtype, slots: torch.Tensor, **options: Any) -> tuple[torch.Tensor, ...]:
    """Pools of 4 blocks, all ones, after the write of a token's keys and values for each slot."""
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(len(slots), 2, size, generator=generator) * 50 for size in (8, 12))
    pools = torch.ones(4, 2, 8, 16).to(pool_dtype), torch.ones(4, 2, 16, 12).to(pool_dtype)
    write_kv(keys, values, *pools, slots, **options)
    return pools


@pytest.mark.parametrize("function", ["write_kv", "paged_attention"])
def test_every_set_takes_the_parameters_of_the_reference(function: str, native: Kernels) -> None:
    expected = set(inspect.signature(getattr(reference, function)).parameters)
    for kernels in (native, gpu_kernels(torch.device("cuda"))):
        assert expected <= set(inspect.signature(getattr(kernels, function)).parameters), kernels.name


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_attention_honours_every_option(native: Kernels, options: dict[str, Any]) -> None:
    case = PagedCase.make(MIXED)
    arguments = (case.query, case.key_pool, case.value_pool, case.batch)
    expected = reference.paged_attention(*arguments, scaling=0.3, **options)
    output = native.paged_attention(*arguments, scaling=0.3, **options)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)
    ignored = native.paged_attention(*arguments, scaling=0.3)
    assert float((ignored - expected).abs().max()) > 1e-2


def test_tokens_without_a_slot_are_not_stored(native: Kernels) -> None:
    slots = torch.tensor([-1, 7, 33, -1, 16])
    for own, expected in zip(
        written(native.write_kv, torch.float32, slots), written(reference.write_kv, torch.float32, slots), strict=True
    ):
        assert torch.equal(own, expected)
        assert int((own != 1).any(dim=(1, 2, 3)).sum()) == 3
    nothing = written(native.write_kv, torch.float32, torch.tensor([-1, -1]))
    assert all(bool((pool == 1).all()) for pool in nothing)


def test_slots_of_32_bits_are_the_same_slots(native: Kernels) -> None:
    slots = torch.tensor([63, 0, 17])
    for own, expected in zip(
        written(native.write_kv, torch.float32, slots.int()),
        written(native.write_kv, torch.float32, slots),
        strict=True,
    ):
        assert torch.equal(own, expected)


@pytest.mark.parametrize("pool_dtype", [torch.float32, torch.float8_e4m3fn])
def test_scales_divide_what_is_stored(native: Kernels, pool_dtype: torch.dtype) -> None:
    slots = torch.tensor([3, -1, 40])
    scales = {"key_scale": torch.tensor([0.5, 3.0]), "value_scale": torch.tensor([2.0, 0.1])}
    own = written(native.write_kv, pool_dtype, slots, **scales)
    expected = written(reference.write_kv, pool_dtype, slots, **scales)
    unscaled = written(native.write_kv, pool_dtype, slots)
    for stored, right, wrong in zip(own, expected, unscaled, strict=True):
        assert torch.equal(stored.float(), right.float())
        assert not torch.equal(stored.float(), wrong.float())


def test_pools_may_have_any_strides(native: Kernels) -> None:
    case = PagedCase.make(MIXED)
    expected = native.paged_attention(case.query, case.key_pool, case.value_pool, case.batch, scaling=0.3)
    keys = case.key_pool.transpose(2, 3).contiguous().transpose(2, 3)  # as they lie on a GPU
    assert not keys.is_contiguous()
    output = native.paged_attention(case.query, keys, case.value_pool, case.batch, scaling=0.3)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)
    new_keys, new_values = torch.randn(2, 2, 16), torch.randn(2, 2, 16)
    slots = torch.tensor([3, 20])
    for pool in (keys, case.key_pool):
        native.write_kv(new_keys, new_values, pool, case.value_pool, slots)
    assert torch.equal(keys.nan_to_num(9), case.key_pool.nan_to_num(9))
