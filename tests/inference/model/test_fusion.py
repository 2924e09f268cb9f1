"""Modules are replaced where the replacement gives the same numbers, and only there."""

from __future__ import annotations

import pytest
import torch

from pagoda_inference.model import quantized
from pagoda_inference.model.fusion import fuse, head_copy_bytes
from pagoda_inference.model.packed_layer import PackedLayer
from pagoda_inference.model.paged_model import forward
from pagoda_inference.model.probe_step import ProbeStep
from pagoda_kernels import Kernels, torch_kernels
from tests.inference.model.paged_model import backend_of, paged_logits
from tests.inference.tiny_models import tiny_model


@pytest.mark.parametrize("family", ["llama", "llama_bias", "mistral", "qwen2"])
def test_llama_like_layers_are_replaced_whole(family: str, kernels: Kernels) -> None:
    replaced = fuse(tiny_model(family), kernels)
    assert replaced["PackedAttention"] == replaced["PackedMlp"] == 3
    assert replaced["PackedRmsNorm"] == 7
    assert replaced["PackedLinear"] == 1  # the head
    assert replaced["PackedLayer"] == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama_bias", "mistral"])
def test_a_layer_in_one_call_has_the_bits_of_its_parts(family: str, dtype: torch.dtype, kernels: Kernels) -> None:
    model = tiny_model(family).to(dtype)
    backend = backend_of(model, kernels)
    whole = paged_logits(backend)
    for index, layer in enumerate(model.model.layers):
        assert isinstance(layer, PackedLayer)
        model.model.layers[index] = layer.own
    parts = paged_logits(backend)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_a_layer_that_adds_its_parts_differently_keeps_its_own_code(kernels: Kernels) -> None:
    model = tiny_model("llama")
    layer = model.model.layers[1]
    kind = type(layer)
    layer.__class__ = type("Scaled", (kind,), {"forward": lambda self, *a, **k: kind.forward(self, *a, **k) * 1.001})
    assert fuse(model, kernels)["PackedLayer"] == 2


def test_a_step_without_pools_runs_the_parts(kernels: Kernels) -> None:
    model = tiny_model("llama")
    tokens = torch.arange(9)
    expected = model(input_ids=tokens[None], use_cache=False).logits[0, -1:]
    fuse(model, kernels)
    actual = forward(model, tokens, tokens, torch.tensor([8]), ProbeStep(kernels))
    assert torch.allclose(actual, expected, atol=1e-4)


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


@pytest.mark.parametrize("bits", [0, 4, 8])
def test_a_head_that_shares_its_weight_is_packed_beside_it(bits: int, kernels: Kernels) -> None:
    model = tiny_model("llama_bias")
    expected = head_copy_bytes(model, kernels, bits)
    if bits:
        quantized.round_weights(model, kernels, bits)
    fuse(model, kernels, bits)
    native, packed = kernels.native, model.lm_head.packed
    assert native is not None
    rows = packed.shape[0] * (native.vector if bits else native.panel)
    assert expected == packed.nbytes * model.lm_head.out_features // rows > 0


def test_no_head_is_packed_beside_its_weight_where_it_has_its_own_or_stays_as_it_is(kernels: Kernels) -> None:
    assert head_copy_bytes(tiny_model("llama"), kernels) == 0
    assert head_copy_bytes(tiny_model("llama_bias"), torch_kernels()) == 0
    assert head_copy_bytes(tiny_model("llama_bias").half(), kernels) == 0
