"""What a model is for a plan: by name, or from the ``config.json`` of a folder or a hub id."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.simulation.architectures import (
    ARCHITECTURES,
    FP16_BYTES,
    LLAMA_13B,
    OPT_13B,
    OPT_66B,
    OPT_175B,
    SMOLLM2_135M,
    Architecture,
)
from pagoda_inference.model.errors import ModelLoadError

KINDS: Mapping[str, tuple[str, int, int]] = {
    OPT_13B.name: ("opt", 40, 40),
    OPT_66B.name: ("opt", 72, 72),
    OPT_175B.name: ("opt", 96, 96),
    LLAMA_13B.name: ("llama", 40, 40),
    SMOLLM2_135M.name: ("llama", 9, 3),
}
"""Of the models with a name: their type in transformers, and how many heads they have of queries and of KV."""


def known(name: str) -> Architecture | None:
    """That of ``bench.simulation.architectures`` by its name, in any case."""
    return next((one for one in ARCHITECTURES.values() if one.name.lower() == name.lower()), None)


def shape_of(name: str, bytes_per_value: int = FP16_BYTES) -> Architecture:
    """A known architecture, or what the configuration of a folder or a hub id says.

    bytes_per_value: of weights and KV. Raises ModelLoadError where there is none.
    """
    if (named := known(name)) is not None:
        same = named.bytes_per_value == bytes_per_value
        return named if same else dataclasses.replace(named, bytes_per_value=bytes_per_value)
    import torch

    from pagoda_inference.model import architecture, hub

    if not Path(name).is_dir():
        hub.reach(name)
    config, model_class = architecture.check(name, files=False)
    text = config.get_text_config()
    heads = int(text.num_attention_heads)
    kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    head_size = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    return Architecture(
        Path(name).resolve().name if Path(name).is_dir() else name,
        architecture.weight_bytes(model_class, config, torch.uint8),
        int(text.num_hidden_layers),
        int(text.hidden_size),
        architecture.context_length(text),
        kv_heads * head_size / int(text.hidden_size),
        bytes_per_value,
    )


def check_shared(name: str, devices: int) -> str:
    """Whether the engine shares a model out among so many devices: raises ModelLoadError where it does not.

    Models with a name, which stand for others in comparisons, may be of a kind that the engine serves on one device
    alone. This is returned as a sentence then, else "".
    """
    if devices == 1:
        return ""
    from pagoda_inference.model import architecture
    from pagoda_inference.model.tensor_parallel import check_divisible

    named = known(name)
    config = architecture.check(name, files=False)[0] if named is None else _config(named)
    try:
        if named is not None:
            check_divisible(_with_a_plan(config), devices)
        check_divisible(config, devices)
    except ModelLoadError as error:
        if named is None or "tensor parallel plan" not in str(error):
            raise ModelLoadError(str(error).replace("PAGODA_ENGINE_TENSOR_PARALLEL", "--devices")) from None
        return (
            f"This engine does not serve {named.name} on {devices} devices: models of type {config.model_type!r} have "
            "no tensor parallel plan in transformers. The plan is what it would be with one."
        )
    return ""


def _config(model: Architecture) -> Any:
    from transformers import AutoConfig

    kind, heads, kv_heads = KINDS[model.name]
    return AutoConfig.for_model(
        kind, hidden_size=model.hidden, num_attention_heads=heads, num_key_value_heads=kv_heads
    )  # fmt: skip


def _with_a_plan(config: Any) -> Any:
    planned = copy.copy(config)
    planned.base_model_tp_plan = {"layers.*": "colwise"}
    return planned
