"""What a model is, from its configuration alone: whether it can be served, and how large it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch

from pagoda_inference.model import model_files
from pagoda_inference.model.errors import ModelLoadError, first_line

_DEFAULT_CONTEXT = 2048
"""For the few models without a bound on positions."""
_WIDENED = frozenset({"mxfp4"})
"""Kinds of quantised weights that transformers widens to the dtype asked for while it loads them."""
_ROPE_BY_LENGTH = frozenset({"dynamic", "longrope"})
"""Kinds of RoPE whose frequencies change when the longest sequence of a step exceeds the original context."""


def check(source: str, *, files: bool = True) -> tuple[Any, Any]:
    """(config, model class) of the model at ``source`` (folder or hub id). files: those with its weights are looked at,
    too.

    Raises ModelLoadError where it cannot be read, its files are not whole, or its architecture does not attend through
    transformers' attention interface (ALiBi models, state space models, encoders).
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # a configuration may hold anything, and its class may raise anything over it
        local = Path(source).is_dir()
        what = "its config.json" if local else "the id and the network, or download it and name the folder"
        reason = first_line(error).rstrip(".")
        raise ModelLoadError(f"No model could be read at {source} ({reason}): check {what}.") from error
    kind = f"Models of type {config.model_type!r}"
    if getattr(config, "is_encoder_decoder", False):
        raise ModelLoadError(f"{kind} are encoder-decoders, which are not supported: choose a decoder-only model.")
    try:
        model_class = cast(Any, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)])
    except KeyError:
        if config.get_text_config() is not config:
            raise ModelLoadError(
                f"{kind} read more than text, which is not supported: choose a model of text alone."
            ) from None
        raise ModelLoadError(f"{kind} do not generate text.") from None
    quantised = getattr(config, "quantization_config", None)
    method = quantised.get("quant_method") if isinstance(quantised, dict) else getattr(quantised, "quant_method", None)
    if quantised and method not in _WIDENED:
        raise ModelLoadError(
            f"The weights at {source} are quantised ({method}), which is not supported: "
            "choose a copy that is not, or a GGUF file."
        )
    if getattr(model_class, "_is_stateful", False):
        raise ModelLoadError(
            f"{model_class.__name__} is not supported: it keeps a state instead of keys and values: "
            "choose a model with attention in every layer."
        )
    if not model_class._can_set_attn_implementation():
        raise ModelLoadError(f"{model_class.__name__} is not supported: {_how_it_attends(config)}.")
    if files and Path(source).is_dir():
        model_files.check(Path(source), config.get_text_config().vocab_size)
    return config, model_class


def context_length(text_config: Any) -> int:
    """Most tokens of a sequence that the model was made for.

    Of a model whose RoPE changes behind its original context for all sequences of a step together, the original
    context: else a sequence's KV would depend on how long its neighbours are.
    """
    bound = int(getattr(text_config, "max_position_embeddings", None) or _DEFAULT_CONTEXT)
    for rope in _rope_parameters(text_config):
        if rope["rope_type"] in _ROPE_BY_LENGTH:
            bound = min(bound, int(rope.get("original_max_position_embeddings") or bound))
    return bound


def intermediate_size(text_config: Any) -> int:
    """Width of the MLP; four times the model's where the configuration does not say."""
    own = getattr(text_config, "intermediate_size", None) or getattr(text_config, "ffn_dim", None)
    return int(own or 4 * text_config.hidden_size)


def weight_bytes(model_class: Any, config: Any, dtype: torch.dtype) -> int:
    """Bytes of the weights in ``dtype``, counted without allocating them. Raises ModelLoadError."""
    try:
        with torch.device("meta"):
            model = model_class(config)
    except Exception as error:  # whatever a model's code raises over sizes that do not fit each other
        reason = first_line(error)
        raise ModelLoadError(f"No {model_class.__name__} can be made of its config.json: {reason}") from error
    return sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize


def _how_it_attends(config: Any) -> str:
    """Why a model does not use transformers' attention interface."""
    attention = getattr(config, "attn_config", None)
    if getattr(config, "alibi", config.model_type == "bloom") or getattr(attention, "alibi", False):
        return (
            "it adds a bias to its scores (ALiBi), which transformers does not pass to an attention of ours: "
            "choose a model with rotary or learned positions"
        )
    return "it does not attend through transformers' attention interface"


def _rope_parameters(text_config: Any) -> Iterator[dict[str, Any]]:
    """Those of the model, or of each kind of layer."""
    parameters = getattr(text_config, "rope_parameters", None) or {}
    for rope in [parameters, *parameters.values()]:
        if isinstance(rope, dict) and "rope_type" in rope:
            yield rope
