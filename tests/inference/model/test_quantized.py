"""Weights of 4 and 8 bits: the native products compute what the rounded weights say, and are not served otherwise."""

from __future__ import annotations

import pytest
import torch

from pagoda_inference.model import fusion, quantized
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.packed_modules import PackedLinear
from pagoda_kernels import Kernels, torch_kernels
from tests.inference.model.paged_model import backend_of, greatest_difference, own_logits, paged_logits
from tests.inference.tiny_models import tiny_model


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_paged_model_computes_what_its_rounded_weights_say(family: str, bits: int, kernels: Kernels) -> None:
    model, whole = tiny_model(family), tiny_model(family)
    quantized.round_weights(model, kernels, bits)
    expected = own_logits(model)
    backend = backend_of(model, kernels, fuse=False)
    replaced = fusion.fuse(model, kernels, bits)
    assert replaced["PackedLinear"] + 2 * (replaced["PackedMlp"] + replaced["PackedAttention"]) >= 13
    ours = paged_logits(backend)
    assert greatest_difference(ours, expected) < 0.1
    assert greatest_difference(expected, own_logits(whole)) > 1e-4  # the weights were rounded


def test_the_head_keeps_8_bits_and_the_embedding_all(kernels: Kernels) -> None:
    model = tiny_model("llama_bias")  # shares the one with the other
    embedding = model.get_input_embeddings().weight.clone()
    quantized.round_weights(model, kernels, 4)
    fusion.fuse(model, kernels, 4)
    heads = [module for module in model.modules() if isinstance(module, PackedLinear) and module.out_features == 199]
    assert [head.bits for head in heads] == [8]
    assert {module.bits for module in model.model.layers.modules() if isinstance(module, PackedLinear)} == {4}
    assert torch.equal(model.get_input_embeddings().weight, embedding)


def test_without_native_kernels_they_are_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"C\+\+ compiler"):
        quantized.round_weights(tiny_model("llama"), torch_kernels(), 4)


def test_in_float16_they_are_refused(kernels: Kernels) -> None:
    with pytest.raises(ModelLoadError, match="float32 or bfloat16"):
        quantized.round_weights(tiny_model("llama").half(), kernels, 8)


def test_a_model_without_linear_layers_is_refused(kernels: Kernels) -> None:
    with pytest.raises(ModelLoadError, match="no linear layers"):
        quantized.round_weights(tiny_model("gpt2"), kernels, 4)


def test_weights_that_are_no_numbers_are_refused(kernels: Kernels) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] = torch.inf
    with pytest.raises(ModelLoadError, match="cannot be kept in 4 bits"):
        quantized.round_weights(model, kernels, 4)
