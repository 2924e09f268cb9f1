"""Folders and files with one tiny Llama in every format that models come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.inference.tiny_models import Family, random_model
from tests.inference.tiny_tokenizers import CHAT_TEMPLATE, tokenizer


def tiny_llama() -> Any:
    """With one embedding for each token of the byte-level tokenizer."""
    return random_model(Family("llama", {"vocab_size": len(tokenizer("byte_level"))}).config())


def write_safetensors(folder: Path) -> Path:
    tiny_llama().save_pretrained(folder)
    return write_tokenizer(folder)


def write_sharded(folder: Path) -> Path:
    tiny_llama().save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    return write_tokenizer(folder)


def write_bin(folder: Path) -> Path:
    """As torch saved models before safetensors."""
    model = tiny_llama()
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return write_tokenizer(folder)


def write_tokenizer(folder: Path) -> Path:
    tokenizer("byte_level").save_pretrained(folder)
    return folder


def write_mxfp4(folder: Path) -> Path:
    """A tiny GPT-OSS whose experts are in 4 bits, a scale to 32 of them, as it is published."""
    from safetensors.torch import load_file, save_file

    sizes = {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16, "vocab_size": len(tokenizer("byte_level"))}
    family = Family("gpt_oss", {**sizes, "sliding_window": 12, "num_local_experts": 4, "num_experts_per_tok": 2})
    random_model(family.config()).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(0)

    def random_bytes(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, dtype=torch.uint8, generator=generator)

    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inner, outer = tensors.pop(name).shape
        tensors[f"{name}_blocks"] = random_bytes(0, 256, experts, outer, inner // 32, 16)
        tensors[f"{name}_scales"] = random_bytes(122, 126, experts, outer, inner // 32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    left = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    quantised = {"quant_method": "mxfp4", "modules_to_not_convert": left}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantised}))
    return write_tokenizer(folder)


def write_gguf(path: Path) -> Path:
    """As llama.cpp's converter writes a Llama: rotary halves interleaved in queries and keys."""
    import gguf

    model = tiny_llama()
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if "q_proj" in name or "k_proj" in name:
            heads = tensor.unflatten(0, (-1, 2, config.head_dim // 2))
            tensor = heads.transpose(1, 2).flatten(0, 2)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any) -> None:
    import gguf

    fast = tokenizer("byte_level")
    definition = json.loads(fast.backend_tokenizer.to_str())
    pieces = sorted(fast.get_vocab().items(), key=lambda item: item[1])
    control = set(fast.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([piece for piece, _ in pieces])
    writer.add_token_types(
        [gguf.TokenType.CONTROL if piece in control else gguf.TokenType.NORMAL for piece, _ in pieces]
    )
    writer.add_token_merges([" ".join(pair) for pair in definition["model"]["merges"]])
    writer.add_eos_token_id(fast.eos_token_id)
    writer.add_chat_template(CHAT_TEMPLATE)
