"""What cannot be served is refused at load, with the reason: what would be silently wrong above all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_inference.model import architecture, verification
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.paged_attention import NAME, StepMissing
from pagoda_inference.model.paged_model import forward
from pagoda_kernels import torch_kernels
from tests.inference.model.paged_model import backend_of, greatest_difference
from tests.inference.tiny_models import FAMILIES, Family, random_model

WINDOW = {"sliding_window": 12}


def by_configuration(config: Any, folder: Path) -> str:
    """The sentence that refuses a model with this config.json."""
    config.save_pretrained(folder)
    with pytest.raises(ModelLoadError) as raised:
        architecture.check(str(folder))
    return one_sentence(raised.value)


def by_a_run(model: Any) -> str:
    """The sentence that refuses a model when its attention is probed."""
    with pytest.raises(ModelLoadError) as raised:
        verification.layer_shapes(model, torch_kernels())
    return one_sentence(raised.value)


def one_sentence(error: ModelLoadError) -> str:
    text = str(error)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("BloomConfig", {}, "BloomForCausalLM is not supported: it adds a bias to its scores (ALiBi)"),
        ("FalconConfig", {"alibi": True}, "FalconForCausalLM is not supported: it adds a bias to its scores (ALiBi)"),
        ("FalconConfig", {}, "FalconForCausalLM is not supported: it does not attend through transformers'"),
        ("MptConfig", {}, "MptForCausalLM is not supported: it adds a bias to its scores (ALiBi)"),
        ("MambaConfig", {}, "MambaForCausalLM is not supported: it keeps a state instead of keys and values"),
        ("RwkvConfig", {}, "RwkvForCausalLM is not supported: it keeps a state instead of keys and values"),
        ("T5Config", {}, "Models of type 't5' are encoder-decoders"),
        ("BartConfig", {}, "Models of type 'bart' are encoder-decoders"),
        ("ViTConfig", {}, "Models of type 'vit' do not generate text"),
        ("LlavaConfig", {}, "Models of type 'llava' read more than text"),
        ("Qwen2VLConfig", {}, "Models of type 'qwen2_vl' read more than text"),
        ("LlamaConfig", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "are quantised (gptq)"),
    ],
)
def test_by_its_configuration(name: str, changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    import transformers

    assert reason in by_configuration(getattr(transformers, name)(**changes), tmp_path)


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        (Family("bert"), "sees tokens that come later: it is an encoder's"),
        (Family("roberta"), "sees tokens that come later: it is an encoder's"),
        (Family("llama4_text", {**FAMILIES["minimax_m2"].changes, "attention_chunk_size": 100}), "sees other tokens"),
        (Family("phimoe", {**FAMILIES["phimoe"].changes, **WINDOW}), "sees other tokens 16 positions back"),
        (Family("diffllama"), "its layers attend several times for a token"),
        (Family("lfm2", {"layer_types": ["conv", "full_attention", "conv"]}), "1 of its 3 layers attend"),
        (Family("minimax", FAMILIES["minimax_m2"].changes), "2 of its 3 layers attend"),
        (
            Family("deepseek_v32", {**FAMILIES["deepseek_v3"].changes, "index_n_heads": 2, "index_head_dim": 8}),
            "its attention depends on indices, which paged attention does not know",
        ),
        (Family("mamba"), "0 of its 3 layers attend"),
    ],
    ids=lambda of: of.model_type if isinstance(of, Family) else "",
)
def test_by_what_its_attention_is_called_with(family: Family, reason: str) -> None:
    assert reason in by_a_run(random_model(family.config()))


def test_a_window_beyond_the_context_is_none() -> None:
    """Such a mask and no keyword, as in PhiMoE's own configuration, are the same attention."""
    family = FAMILIES["phimoe"]
    wide = random_model(Family("phimoe", {**family.changes, "sliding_window": 256}).config())
    assert len(verification.layer_shapes(wide, torch_kernels())) == 3
    narrow = random_model(Family("phimoe", {**family.changes, "sliding_window": 255}).config())
    assert "255 positions back" in by_a_run(narrow)


def test_a_window_that_the_model_makes_wider_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(FAMILIES["ministral"].config())
    model.model.layers[1].self_attn.sliding_window = 11
    assert "its layer 1 sees other tokens 11 positions back" in by_a_run(model)


def test_a_model_whose_code_fails_on_a_stream_of_tokens() -> None:
    model = random_model(FAMILIES["gemma"].config())
    model.model.layers[0].self_attn.q_proj = torch.nn.Linear(32, 7)
    assert "running it on 40 tokens raises" in by_a_run(model)
    with pytest.raises(ModelLoadError, match="running it on 40 tokens raises"):
        verification.reference_logits(model)


def test_a_step_reaches_attention_past_layers_that_drop_it_and_is_forgotten_then() -> None:
    """StableLM's layers pass no keywords on. A second run without a step must not find that of the first."""
    backend = backend_of(random_model(FAMILIES["stablelm"].config()), torch_kernels())
    model = backend._model
    assert model.config._attn_implementation == NAME
    tokens = torch.arange(3)
    with pytest.raises(StepMissing), torch.inference_mode():
        forward(model, tokens, tokens, tokens, None)  # type: ignore[arg-type]


ROPE = {"rope_theta": 10000.0, "original_max_position_embeddings": 32}
LONG_ROPE = {**ROPE, "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}


@pytest.mark.parametrize(
    ("family", "rope", "context"),
    [
        ("llama", {"rope_theta": 10000.0, "rope_type": "default"}, 256),
        ("llama", {**ROPE, "rope_type": "yarn", "factor": 8.0}, 256),
        ("llama", {"rope_theta": 10000.0, "rope_type": "dynamic", "factor": 8.0}, 256),
        ("phi3", LONG_ROPE, 32),
        (
            "gemma3_text",
            {"full_attention": LONG_ROPE, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
            32,
        ),
    ],
)
def test_the_context_ends_where_rope_begins_to_depend_on_the_longest_sequence(
    family: str, rope: dict[str, Any], context: int
) -> None:
    changes = {"original_max_position_embeddings": 32} if family == "phi3" else {}
    config = Family(family, {"rope_parameters": rope, **changes}).config()
    assert architecture.context_length(config) == context


def test_beyond_that_context_a_neighbour_would_change_a_sequence() -> None:
    """Why it ends there: transformers takes the frequencies of a step by its greatest position."""
    from pagoda_inference.decoding.sampling import Sampler
    from pagoda_inference.model.backend import Chunk

    config = Family("phi3", {"rope_parameters": LONG_ROPE, "original_max_position_embeddings": 32}).config()
    backend = backend_of(random_model(config), torch_kernels())
    short = Chunk([5, 6, 7], 0, [0], Sampler())
    alone = backend.logits([short], [0])

    def beside(length: int) -> torch.Tensor:
        return backend.logits([short, Chunk(list(range(length)), 0, list(range(1, 20)), Sampler())], [0])

    assert greatest_difference([beside(32)], [alone]) < 1e-4
    assert greatest_difference([beside(33)], [alone]) > 1e-3
