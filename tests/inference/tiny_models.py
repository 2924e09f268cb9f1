"""Tiny models of many families with random weights, that differ in what their attention does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

VOCABULARY = 199
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _config(name: str, **changes: Any) -> Callable[[], Any]:
    def make() -> Any:
        import transformers

        return getattr(transformers, name)(**{**_COMMON, **changes})

    return make


CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": _config("LlamaConfig"),
    "llama_bias": _config("LlamaConfig", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "qwen2": _config("Qwen2Config"),
    "qwen3": _config("Qwen3Config"),
    "gemma2": _config("Gemma2Config", sliding_window=12, query_pre_attn_scalar=16, attn_logit_softcapping=2.0),
    "gemma3": _config("Gemma3TextConfig", sliding_window=12, query_pre_attn_scalar=16),
    "mistral": _config("MistralConfig", sliding_window=12),
    "phi3": _config("Phi3Config"),
    "olmo2": _config("Olmo2Config"),
    "gpt2": _config("GPT2Config", n_embd=32, n_layer=3, n_head=4, n_positions=256),
    "opt": _config("OPTConfig", ffn_dim=48, word_embed_proj_dim=32),
    "gpt_neox": _config("GPTNeoXConfig"),
    "gpt_oss": _config("GptOssConfig", sliding_window=12, num_local_experts=2, num_experts_per_tok=1),
    "mixtral": _config("MixtralConfig", num_local_experts=2, num_experts_per_tok=1),
}


def tiny_model(family: str, seed: int = 0) -> Any:
    """A float32 model whose attention matters: weights are larger than a fresh model's, sinks not zero."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[family](), attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and "ln_" not in name:
                parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.5))
    return model
