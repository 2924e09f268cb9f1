"""What a model is for a plan: by name, or from the ``config.json`` of a folder or a hub id."""

from __future__ import annotations

from bench.simulation.architectures import ARCHITECTURES, Architecture


def shape_of(name: str, bytes_per_value: int = 2) -> Architecture:
    """An architecture of ``bench.simulation.architectures`` by its name, in any case, or what its configuration says.

    bytes_per_value: of weights and KV. Raises ModelLoadError where there is none.
    """
    for known in ARCHITECTURES.values():
        if known.name.lower() == name.lower():
            return known
    import torch

    from pagoda_inference.model import architecture

    config, model_class = architecture.check(name, files=False)
    text = config.get_text_config()
    heads = int(text.num_attention_heads)
    kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    head_size = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    return Architecture(
        name,
        architecture.weight_bytes(model_class, config, torch.uint8),
        int(text.num_hidden_layers),
        int(text.hidden_size),
        architecture.context_length(text),
        kv_heads * head_size / int(text.hidden_size),
        bytes_per_value,
    )
