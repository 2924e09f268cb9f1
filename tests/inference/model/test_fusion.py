"""Modules are replaced where the replacement gives the same numbers, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pagoda_inference.model.fusion import fuse
from pagoda_kernels import Kernels, cpu_kernels, torch_kernels
from tests.inference.tiny_models import tiny_model


@pytest.fixture(scope="session")
def kernels(build_home: Path) -> Kernels:
    kernels = cpu_kernels(build_home)
    if kernels.native is None:
        pytest.skip("no C++ compiler")
    return kernels


@pytest.mark.parametrize("family", ["llama", "llama_bias", "mistral", "qwen2"])
def test_llama_like_layers_are_replaced_whole(family: str, kernels: Kernels) -> None:
    replaced = fuse(tiny_model(family), kernels)
    assert replaced["PackedAttention"] == replaced["PackedMlp"] == 3
    assert replaced["PackedRmsNorm"] == 7
    assert replaced["PackedLinear"] == 1  # the head


def test_attention_that_normalises_its_heads_keeps_its_own_code(kernels: Kernels) -> None:
    replaced = fuse(tiny_model("qwen3"), kernels)
    assert replaced["PackedAttention"] == 0
    assert replaced["PackedLinear"] == 3 * 4 + 1


def test_an_mlp_with_another_activation_keeps_its_own_code(kernels: Kernels) -> None:
    model = tiny_model("llama")
    for layer in model.model.layers:
        layer.mlp.act_fn = torch.nn.GELU()
    assert fuse(model, kernels)["PackedMlp"] == 0


def test_a_norm_that_adds_one_to_its_weight_keeps_its_own_code(kernels: Kernels) -> None:
    model = tiny_model("llama")
    norm = type(model.model.norm)
    shifted = type("ShiftedRMSNorm", (norm,), {"forward": lambda self, x: norm.forward(self, x) * 2})
    model.model.norm.__class__ = shifted
    assert fuse(model, kernels)["PackedRmsNorm"] == 6


def test_without_native_kernels_nothing_is_replaced(kernels: Kernels) -> None:
    assert not fuse(tiny_model("llama"), torch_kernels())
    assert not fuse(tiny_model("llama").half(), kernels)
