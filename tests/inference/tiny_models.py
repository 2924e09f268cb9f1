"""A tiny random model of each family that is served, chosen so that what its attention does can be seen in the logits:
windows shorter than the prompts, heads of several kinds, values of another size than keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

VOCABULARY = 199
CONTEXT = 256
WINDOW = 12
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED: dict[str, Any] = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "head_dim": 4,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
}
_WINDOW: dict[str, Any] = {"sliding_window": WINDOW}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}


@dataclass(frozen=True, slots=True)
class Family:
    """model_type: as in config.json. changes: to the sizes that all share. uses: what its attention is called with
    besides the scaling, in some layer at least."""

    model_type: str
    changes: dict[str, Any] = field(default_factory=dict)
    uses: frozenset[str] = frozenset()

    def config(self) -> Any:
        from transformers import CONFIG_MAPPING

        return CONFIG_MAPPING[self.model_type](**{**_SIZES, **self.changes})


def _family(model_type: str, *uses: str, **changes: Any) -> Family:
    return Family(model_type, changes, frozenset(uses))


FAMILIES: dict[str, Family] = {
    "afmoe": _family("afmoe", "sliding_window", **_WINDOW, **_EXPERTS, moe_intermediate_size=16),
    "apertus": _family("apertus"),
    "arcee": _family("arcee"),
    "biogpt": _family("biogpt"),
    "codegen": _family("codegen", n_embd=32, n_layer=3, n_head=4, n_positions=CONTEXT, rotary_dim=4),
    "cohere": _family("cohere"),
    "cohere2": _family(
        "cohere2", "sliding_window", **_WINDOW, layer_types=["sliding_attention"] * 2 + ["full_attention"]
    ),
    "deepseek_v2": _family("deepseek_v2", **_ROUTED, **_LATENT),
    "deepseek_v3": _family("deepseek_v3", **_ROUTED, **_LATENT),
    "dots1": _family("dots1", **_ROUTED),
    "ernie4_5": _family("ernie4_5"),
    "ernie4_5_moe": _family("ernie4_5_moe", moe_num_experts=4, moe_k=2, moe_intermediate_size=16),
    "exaone4": _family("exaone4", "sliding_window", **_WINDOW, sliding_window_pattern=2),
    "flex_olmo": _family("flex_olmo", **_EXPERTS),
    "gemma": _family("gemma"),
    "gemma2": _family(
        "gemma2", "sliding_window", "softcap", **_WINDOW, query_pre_attn_scalar=16, attn_logit_softcapping=2.0
    ),
    "gemma3": _family("gemma3_text", "sliding_window", **_WINDOW, query_pre_attn_scalar=16),
    "glm": _family("glm"),
    "glm4": _family("glm4"),
    "glm4_moe": _family("glm4_moe", **_ROUTED),
    "gpt2": _family("gpt2", n_embd=32, n_layer=3, n_head=4, n_positions=CONTEXT),
    "gpt_bigcode": _family("gpt_bigcode", n_embd=32, n_layer=3, n_head=4, n_positions=CONTEXT),
    "gpt_neox": _family("gpt_neox"),
    "gpt_oss": _family("gpt_oss", "sliding_window", "sinks", **_WINDOW, num_local_experts=2, num_experts_per_tok=1),
    "gptj": _family("gptj", n_embd=32, n_layer=3, n_head=4, n_positions=CONTEXT, rotary_dim=4),
    "granite": _family("granite", attention_multiplier=0.2),
    "granite_swa": _family("granite_swa", "sliding_window", "sinks", **_WINDOW),
    "granitemoe": _family("granitemoe", **_EXPERTS),
    "helium": _family("helium"),
    "hunyuan_v1_dense": _family("hunyuan_v1_dense"),
    "jais2": _family("jais2"),
    "jetmoe": _family("jetmoe", num_local_experts=2, num_experts_per_tok=1, kv_channels=8),
    "llama": _family("llama"),
    "llama with llama3 rope": _family("llama", rope_parameters=_LLAMA3_ROPE),
    "llama with yarn rope": _family("llama", rope_parameters=_YARN_ROPE),
    "llama_bias": _family("llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "mimo_v2_flash": _family("mimo_v2_flash", "sliding_window", "sinks", **_WINDOW, **_ROUTED, v_head_dim=6),
    "minimax_m2": _family("minimax_m2", **_EXPERTS),
    "ministral": _family("ministral", "sliding_window", **_WINDOW),
    "ministral3": _family("ministral3"),
    "mistral": _family("mistral", "sliding_window", **_WINDOW),
    "mixtral": _family("mixtral", num_local_experts=2, num_experts_per_tok=1),
    "modernbert-decoder": _family("modernbert-decoder", "sliding_window", local_attention=WINDOW),
    "nanochat": _family("nanochat"),
    "nemotron": _family("nemotron"),
    "olmo": _family("olmo"),
    "olmo2": _family("olmo2"),
    "olmo3": _family("olmo3", "sliding_window", **_WINDOW, layer_types=["sliding_attention"] * 2 + ["full_attention"]),
    "olmoe": _family("olmoe", **_EXPERTS),
    "opt": _family("opt", ffn_dim=48, word_embed_proj_dim=32),
    "persimmon": _family("persimmon"),
    "phi": _family("phi"),
    "phi3": _family("phi3"),
    "phi3 with a window": _family("phi3", "sliding_window", **_WINDOW),
    "phimoe": _family("phimoe", **_EXPERTS),
    "qwen2": _family("qwen2"),
    "qwen2 with windows": _family("qwen2", "sliding_window", **_WINDOW, use_sliding_window=True, max_window_layers=1),
    "qwen2_moe": _family(
        "qwen2_moe", **_EXPERTS, moe_intermediate_size=16, shared_expert_intermediate_size=16, decoder_sparse_step=1
    ),
    "qwen3": _family("qwen3"),
    "qwen3_moe": _family("qwen3_moe", **_EXPERTS, moe_intermediate_size=16),
    "seed_oss": _family("seed_oss"),
    "smollm3": _family("smollm3", no_rope_layers=[1, 0, 1]),
    "stablelm": _family("stablelm"),
    "starcoder2": _family("starcoder2", "sliding_window", **_WINDOW),
    "vaultgemma": _family(
        "vaultgemma", "sliding_window", "softcap", **_WINDOW, query_pre_attn_scalar=16, attn_logit_softcapping=2.0
    ),
}


def random_model(config: Any, seed: int = 0) -> Any:
    """A float32 model of ``config`` whose attention matters: weights larger than a fresh model's, sinks not zero."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and "ln_" not in name:
                parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.5))
    return model


def tiny_model(family: str, seed: int = 0) -> Any:
    """A random model of one of FAMILIES."""
    return random_model(FAMILIES[family].config(), seed)
