"""Memory is divided as asked, or modestly, and never more than there is."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.memory_plan import GIB, check_model_fits, plan_memory

MODEL: dict[str, Any] = {"weights": 4 * GIB, "activations": GIB, "bytes_per_block": 1 << 20, "block_size": 16}


@pytest.mark.parametrize(
    ("available", "on_gpu", "pool"),
    [(9 * GIB, False, GIB), (105 * GIB, False, 2 * GIB), (15 * GIB, True, 9 * GIB)],
)
def test_without_a_setting_the_pool_is_a_share_of_what_is_left(available: int, on_gpu: bool, pool: int) -> None:
    plan = plan_memory(available=available, on_gpu=on_gpu, **MODEL)
    assert plan.total_blocks == pool >> 20
    assert plan.pool == plan.total_blocks << 20


def test_tokens_are_rounded_up_to_blocks_and_gib_down() -> None:
    assert plan_memory(available=9 * GIB, on_gpu=False, pool_tokens=33, **MODEL).total_blocks == 3
    assert plan_memory(available=9 * GIB, on_gpu=False, pool_gib=1.9999, **MODEL).total_blocks == 2047


@pytest.mark.parametrize("pool", [{"pool_gib": 4.1}, {"pool_tokens": 16 * 4200}])
def test_a_pool_that_does_not_fit_is_refused_with_what_is_left(pool: dict[str, Any]) -> None:
    with pytest.raises(ModelLoadError, match=r"4\.0 GiB are left"):
        plan_memory(available=9 * GIB, on_gpu=False, **pool, **MODEL)


def test_a_pool_without_a_block_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="holds no block"):
        plan_memory(available=9 * GIB, on_gpu=False, pool_gib=0.0001, **MODEL)


def test_a_model_that_leaves_nothing_is_refused_with_the_numbers() -> None:
    check_model_fits(available=6 * GIB, weights=4 * GIB, activations=GIB)
    with pytest.raises(ModelLoadError, match=r"5\.0 GiB .* only 5\.0 GiB"):
        check_model_fits(available=5 * GIB, weights=4 * GIB, activations=GIB)


def test_the_plan_reads_as_a_sentence() -> None:
    plan = plan_memory(available=9 * GIB, on_gpu=False, **MODEL)
    assert str(plan) == (
        "memory plan: 4.00 GiB weights + 1.00 GiB activations + 1.00 GiB KV pool (1024 blocks) of 9.00 GiB available"
    )
