"""Every kernel compiles for every GPU, spills nothing, and stays within the budget written beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from pagoda_kernels.triton_attention.tiling import Budget
from pagoda_kernels.triton_layers import block_copy, gates, kv_write, normalisation, rotary, sampling
from pagoda_kernels.triton_layers.block_transfer import read_blocks, write_blocks
from tests.kernels.ahead_of_time import ARCHITECTURES
from tests.kernels.launches import launches_of


@dataclass(frozen=True)
class Case:
    """A call whose launch is compiled; ``make`` gives its arguments, without memory."""

    function: Callable[..., Any]
    budget: Budget
    make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def kv(size: int, heads: int, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    key_pool = empty(100_000, heads, 16, size, dtype=dtype).transpose(2, 3)
    keys = empty(64, heads, size)
    scale = empty(heads, dtype=torch.float32) if dtype == torch.float8_e4m3fn else None
    arguments = keys, keys, key_pool, empty(100_000, heads, 16, size, dtype=dtype), empty(64, dtype=torch.int64)
    return arguments, {"key_scale": scale, "value_scale": scale}


def pools(size: int) -> list[torch.Tensor]:
    return [torch.empty(4, 8, 16, size, dtype=torch.uint8) for _ in range(4)]


def norm(size: int, *, summed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    residual = empty(64, size) if summed else None
    return (empty(64, size), empty(size), 1e-6), {"residual": residual, "unit_offset": summed}


def heads(interleaved: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    angles = empty(64, 64, dtype=torch.float32)
    return (empty(64, 32, 128), empty(64, 8, 128), angles, angles), {"interleaved": interleaved}


def logits(dtype: torch.dtype, *, filtered: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    column = empty(64, dtype=torch.float32)
    filters = {"top_k": empty(64, dtype=torch.int32), "top_p": column, "min_p": column} if filtered else {}
    return (empty(64, 151_936, dtype=dtype), empty(64, dtype=torch.float64), column), filters


CASES = {
    "write_kv": Case(kv_write.write_kv, kv_write.BUDGET, lambda: kv(128, 8, torch.bfloat16)),
    "write_kv to float8": Case(kv_write.write_kv, kv_write.BUDGET, lambda: kv(96, 32, torch.float8_e4m3fn)),
    "copy_blocks": Case(block_copy.copy_blocks, block_copy.BUDGET, lambda: ((pools(128), [(0, 1)]), {})),
    "copy_blocks, odd": Case(block_copy.copy_blocks, block_copy.BUDGET, lambda: ((pools(7)[:1], [(0, 1)]), {})),
    "read_blocks": Case(read_blocks, block_copy.BUDGET, lambda: ((pools(128), [0, 1]), {})),
    "write_blocks": Case(write_blocks, block_copy.BUDGET, lambda: ((pools(128), [0], [bytes(65536)]), {})),
    "rms_norm": Case(normalisation.rms_norm, normalisation.BUDGET, lambda: norm(576, summed=False)),
    "rms_norm, summed": Case(normalisation.rms_norm, normalisation.BUDGET, lambda: norm(16384, summed=True)),
    "rotate": Case(rotary.rotate, rotary.BUDGET, lambda: heads(False)),
    "rotate, interleaved": Case(rotary.rotate, rotary.BUDGET, lambda: heads(True)),
    "gated_activation": Case(gates.gated_activation, gates.BUDGET,
                             lambda: ((empty(64, 28672), "gelu_tanh"), {})),
    "sample": Case(sampling.sample, sampling.BUDGET, lambda: logits(torch.float32, filtered=False)),
    "sample, filtered": Case(sampling.sample, sampling.BUDGET, lambda: logits(torch.bfloat16, filtered=True)),
}  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CASES)
def test_it_fits_its_budget(name: str, architecture: int) -> None:
    case = CASES[name]
    arguments, keywords = case.make()
    (launch,) = launches_of(case.function, *arguments, **keywords)
    taken = launch.compiled(architecture)
    assert taken.spilled_bytes == 0
    assert taken.registers <= case.budget.registers
    assert taken.shared_bytes <= case.budget.shared_bytes
