"""On a GPU's layers a model's modules are replaced where the numbers are the same, and only there; the layers are the
reference's here, and Triton's as it interprets them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from pagoda_inference.model.fusion import fuse
from pagoda_inference.model.paged_model import forward
from pagoda_inference.model.probe_step import ProbeStep
from pagoda_kernels import Kernels, layer_reference, torch_kernels
from pagoda_kernels.kernels import Layers
from tests.inference.model.paged_model import backend_of, greatest_difference, own_logits, paged_logits
from tests.inference.tiny_models import FAMILIES, tiny_model
from tests.kernels.interpreted import interpreted

LAYERS = ("rms_norm", "rotate", "gated_activation", "sample")
EXPECTED = {
    "llama": {"FusedRmsNorm": 7, "FusedMlp": 3, "FusedAttention": 3},
    "llama_bias": {"FusedRmsNorm": 7, "FusedMlp": 3, "FusedAttention": 3},
    "qwen3": {"FusedRmsNorm": 13, "FusedMlp": 3},  # its heads are normalised: attention keeps its own code
    "gemma": {"FusedRmsNorm": 7, "FusedMlp": 3, "FusedAttention": 3},  # GeGLU, and weights kept less 1
    "gpt2": {},
}


def with_layers() -> Kernels:
    return replace(torch_kernels(), layers=Layers(*(getattr(layer_reference, name) for name in LAYERS)))


def replaced_in(model: Any) -> Counter[str]:
    names = (type(module).__name__ for module in model.modules())
    return Counter(name for name in names if name.startswith("Fused"))


@pytest.mark.parametrize("family", EXPECTED)
def test_parts_are_replaced_where_they_are_known(family: str) -> None:
    assert fuse(tiny_model(family), with_layers()) == Counter(EXPECTED[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_stay_the_models_own(family: str) -> None:
    model = tiny_model(family)
    expected = own_logits(model)
    assert greatest_difference(paged_logits(backend_of(model, with_layers())), expected) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_number_formats_are_replaced_as_well(dtype: torch.dtype) -> None:
    model = tiny_model("llama")
    expected = own_logits(model)
    backend = backend_of(model.to(dtype), with_layers())
    assert replaced_in(model) == Counter(EXPECTED["llama"])
    ours = [each.float() for each in paged_logits(backend)]
    assert greatest_difference(ours, expected) < 0.1


def test_layers_that_compute_anything_else_replace_nothing() -> None:
    def doubled(*arguments: object, **options: object) -> torch.Tensor:
        return 2 * layer_reference.rms_norm(*arguments, **options)  # type: ignore[arg-type]

    kernels = with_layers()
    assert kernels.layers is not None
    wrong = replace(kernels.layers, rms_norm=doubled, rotate=lambda *_: None)
    assert fuse(tiny_model("llama"), replace(kernels, layers=wrong)) == Counter({"FusedMlp": 3})


def replaced_and_difference(family: str) -> tuple[Counter[str], float]:
    """With Triton's layers, whose module is imported here: where it runs decides how."""
    from pagoda_kernels import triton_layers

    kernels = replace(torch_kernels(), layers=Layers(*(getattr(triton_layers, name) for name in LAYERS)))
    model = tiny_model(family)
    tokens = torch.arange(9)
    with torch.inference_mode():
        expected = model(input_ids=tokens[None], use_cache=False).logits[0]
        replaced = fuse(model, kernels)
        ours = forward(model, tokens, tokens, tokens, ProbeStep(kernels))
    return replaced, greatest_difference([ours], [expected])


@pytest.mark.parametrize("family", ["llama_bias", "gemma"])
def test_tritons_layers_give_the_models_own_logits(family: str) -> None:
    replaced, difference = interpreted(replaced_and_difference)(family)
    assert replaced == Counter(EXPECTED[family])
    assert difference < 1e-4
