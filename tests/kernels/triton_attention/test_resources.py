"""Every attention kernel, compiled for the GPUs that it is for, spills nothing and stays in its budget."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pagoda_kernels.triton_attention import decode, prefill, reduction
from pagoda_kernels.triton_attention.tiling import RESIDENT
from tests.kernels.ahead_of_time import ARCHITECTURES
from tests.kernels.triton_attention.launches import recorded

BUDGETS = {
    "decode_kernel": decode.BUDGET,
    "prefill_kernel": prefill.BUDGET,
    "reduction_kernel": reduction.BUDGET,
}
STEPS: dict[str, dict[str, Any]] = {
    "decode in parts": {"sequences": 1, "tokens": 1, "longest_context": 100_000},
    "chunk": {"sequences": 1, "tokens": 512, "longest_query": 512},
}
EVERY_OPTION = {"sliding_window": 1000, "softcap": 30.0, "sinks": True, "alibi_slopes": True}
FLOAT8 = {"pool_dtype": torch.float8_e4m3fn, "key_scale": True, "value_scale": True}
SHAPES: dict[str, dict[str, Any]] = {
    "64": {"head_size": 64, "value_size": 64, "dtype": torch.float16},
    "80": {"head_size": 80, "value_size": 80, "query_heads": 7, "kv_heads": 1},
    "96": {"head_size": 96, "value_size": 96, "block_size": 32},
    "128 with every option": EVERY_OPTION,
    "many query heads": {"query_heads": 64, "kv_heads": 1, **EVERY_OPTION},
    "128 in float8": FLOAT8,
    "128 in blocks of 5": {"block_size": 5},
    "256": {"head_size": 256, "value_size": 256},
    "256 with every option": {"head_size": 256, "value_size": 256, **EVERY_OPTION},
    "256 in float8": {"head_size": 256, "value_size": 256, **FLOAT8},
    "192 and 128": {"head_size": 192, "value_size": 128},
    "128 in float32": {"dtype": torch.float32},
    "256 in float32 with float8": {"dtype": torch.float32, "head_size": 256, "value_size": 256, **FLOAT8},
}


def check(monkeypatch: pytest.MonkeyPatch, architecture: int, **step: Any) -> None:
    for launch in recorded(monkeypatch, architecture=architecture, **step):
        resources, budget = launch.compiled(architecture), BUDGETS[launch.name]
        assert resources.spilled_bytes == 0, (launch.name, resources)
        assert resources.registers <= budget.registers, (launch.name, resources)
        assert resources.shared_bytes <= budget.shared_bytes, (launch.name, resources)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("step", STEPS)
def test_the_usual_shape(monkeypatch: pytest.MonkeyPatch, step: str, architecture: int) -> None:
    check(monkeypatch, architecture, **STEPS[step])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_as_many_decodes_run_at_once_as_the_choice_of_parts_reckons_with(
    monkeypatch: pytest.MonkeyPatch, architecture: int
) -> None:
    decode_launch = recorded(monkeypatch, architecture=architecture, **STEPS["decode in parts"])[0]
    resources = decode_launch.compiled(architecture)
    threads = 32 * decode_launch.arguments["num_warps"]
    assert RESIDENT * threads * -(-resources.registers // 8) * 8 <= 65_536
    assert RESIDENT * (resources.shared_bytes + 1024) <= 164 * 1024, "of an A100, which has least"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_other_shapes(monkeypatch: pytest.MonkeyPatch, shape: str, step: str, architecture: int) -> None:
    check(monkeypatch, architecture, **{**STEPS[step], **SHAPES[shape]})
