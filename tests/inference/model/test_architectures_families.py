"""Every family of tiny_models.py gives its own logits through the paged pool; what its attention is called with is what
it uses, and dropping any of it changes the logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_kernels import cpu_kernels
from tests.inference.model.paged_model import backend_of, change_calls, greatest_difference, own_logits, paged_logits
from tests.inference.tiny_models import FAMILIES, Family, random_model

Served = Callable[[str], tuple[TransformersBackend, list[torch.Tensor]]]
Parameters = dict[str, Any]


@pytest.fixture(scope="session")
def served(build_home: Path) -> Served:
    """Of a family: its backend, with the kernels and the fused modules that serve on this machine, and the logits that
    the model had before."""
    kernels = cpu_kernels(build_home)

    @cache
    def backend_and_logits(family: str) -> tuple[TransformersBackend, list[torch.Tensor]]:
        model = random_model(FAMILIES[family].config())
        expected = own_logits(model)
        return backend_of(model, kernels), expected

    return backend_and_logits


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_models_own(family: str, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, expected = served(family)
    assert greatest_difference(paged_logits(backend), expected) < 1e-4
    used: set[str] = set()

    def noted(parameters: Parameters) -> Parameters:
        used.update(name for name, value in parameters.items() if value is not None)
        return parameters

    change_calls(monkeypatch, noted)
    assert greatest_difference(paged_logits(backend), expected) < 1e-4
    assert used == {"scaling", *FAMILIES[family].uses}


@pytest.mark.parametrize(
    ("family", "dropped"),
    [(name, used) for name, family in FAMILIES.items() for used in sorted({"scaling", *family.uses})],
)
def test_dropping_a_parameter_of_attention_is_noticed(
    family: str, dropped: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, expected = served(family)

    def without(parameters: Parameters) -> Parameters:
        if dropped == "scaling":
            return {**parameters, "scaling": 0.5 if parameters["scaling"] == 1 else 1.0}
        return {**parameters, dropped: None}

    change_calls(monkeypatch, without)
    assert greatest_difference(paged_logits(backend), expected) > 1e-3


def test_the_text_part_of_a_model_that_also_reads_images(build_home: Path) -> None:
    from transformers import Gemma3Config

    text = Family("gemma3_text", {"sliding_window": 12, "query_pre_attn_scalar": 16}).config()
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    vision = {**sizes, "image_size": 28, "patch_size": 14}
    images = {"mm_tokens_per_image": 4, "image_token_index": 190, "boi_token_index": 191, "eoi_token_index": 192}
    model = random_model(Gemma3Config(text_config=text.to_dict(), vision_config=vision, **images))
    assert type(model).__name__ == "Gemma3ForConditionalGeneration"
    expected = own_logits(model)
    assert greatest_difference(paged_logits(backend_of(model, cpu_kernels(build_home))), expected) < 1e-4
