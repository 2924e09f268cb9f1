"""Which weights of a file may stay unused, and which say that the configuration is another model's."""

from __future__ import annotations

import pytest

from pagoda_inference.model.unused_weights import unused_weights
from tests.inference.model.model_folders import tiny_llama


def test_further_layers_and_parameters_of_own_modules_have_to_be_used() -> None:
    names = ["model.layers.11.mlp.up_proj.weight", "model.layers.3.mlp.up_proj.weight", "lm_head.bias"]
    assert unused_weights(tiny_llama(), names) == [names[2], names[1], names[0]]


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.masked_bias",
        "vision_tower.encoder.layers.30.mlp.fc1.weight",
        "model.mtp.layers.0.mlp.up_proj.weight",
        "score.weight",
    ],
)
def test_what_is_no_part_of_the_model_may_stay_unused(name: str) -> None:
    assert unused_weights(tiny_llama(), [name]) == []


def test_layers_that_guess_further_tokens_may_stay_unused() -> None:
    model = tiny_llama()
    model.config.num_nextn_predict_layers = 1
    names = [f"model.layers.{layer}.mlp.down_proj.weight" for layer in (3, 4)]
    assert unused_weights(model, names) == [names[1]]
