"""What a model is, from its configuration alone: whether it can be served, and how large it is."""

from __future__ import annotations

from typing import Any, cast

import torch

from pagoda_inference.model.errors import ModelLoadError

_DEFAULT_CONTEXT = 2048
"""For the few models without a bound on positions."""


def check(source: str) -> tuple[Any, Any]:
    """(config, model class) of the model at ``source`` (folder or hub id).

    Raises ModelLoadError where it cannot be read, or its architecture does not attend through transformers' attention
    interface (ALiBi models, state space models, encoders).
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelLoadError(f"No model could be read at {source}: {reason}") from error
    try:
        model_class = cast(Any, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)])
    except KeyError:
        raise ModelLoadError(f"Models of type {config.model_type!r} do not generate text.") from None
    if not getattr(model_class, "_supports_attention_backend", False) or getattr(config, "is_encoder_decoder", False):
        raise ModelLoadError(
            f"{model_class.__name__} is not supported: it does not attend through transformers' attention interface."
        )
    return config, model_class


def context_length(text_config: Any) -> int:
    """Most tokens of a sequence that the model was made for."""
    return int(getattr(text_config, "max_position_embeddings", None) or _DEFAULT_CONTEXT)


def intermediate_size(text_config: Any) -> int:
    """Width of the MLP; four times the model's where the configuration does not say."""
    own = getattr(text_config, "intermediate_size", None) or getattr(text_config, "ffn_dim", None)
    return int(own or 4 * text_config.hidden_size)


def weight_bytes(model_class: Any, config: Any, dtype: torch.dtype) -> int:
    """Bytes of the weights in ``dtype``, counted without allocating them."""
    with torch.device("meta"):
        model = model_class(config)
    return sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize
