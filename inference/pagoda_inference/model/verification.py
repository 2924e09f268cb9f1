"""Finding out, before serving, that a model really runs on our attention and computes what its own code computes.

An architecture that ignores the registered attention function fails silently, with plausible text. So each load runs
a few dozen tokens through the model's own eager attention, and through ours, and compares logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.kv_memory import LayerShape
from pagoda_inference.model.paged_attention import NAME
from pagoda_inference.model.probe_step import ProbeStep
from pagoda_inference.model.transformers_backend import TransformersBackend, forward
from pagoda_kernels import Kernels

_PROBE_TOKENS = 40
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
"""Greatest relative error of a logits row (2-norm): far above rounding, far below any real difference (about 1)."""


def probe_tokens(vocabulary_size: int) -> list[int]:
    """Fixed, varied token ids."""
    return [(7 + 7919 * index) % vocabulary_size for index in range(_PROBE_TOKENS)]


@torch.inference_mode()
def reference_logits(model: Any) -> torch.Tensor:
    """Logits [1, V] after the probe tokens by the model's own eager attention."""
    tokens = torch.tensor([probe_tokens(_vocabulary(model))], device=model.device)
    model.set_attn_implementation("eager")
    return model(input_ids=tokens, use_cache=False, return_dict=True).logits[0, -1:].float()


@torch.inference_mode()
def layer_shapes(model: Any, kernels: Kernels) -> list[LayerShape]:
    """KV geometry of each layer, recorded from the calls of a probe run.

    Raises ModelLoadError where a layer never calls the attention function, or hides its sliding window from it.
    """
    tokens = torch.tensor(probe_tokens(_vocabulary(model)), device=model.device)
    recorder = ProbeStep(kernels)
    model.set_attn_implementation(NAME)
    positions = torch.arange(len(tokens), device=model.device)
    last = torch.tensor([len(tokens) - 1], device=model.device)
    forward(model, tokens, positions, last, recorder)
    config = model.config.get_text_config()
    layers = int(config.num_hidden_layers)
    if sorted(recorder.shapes) != list(range(layers)):
        raise ModelLoadError(
            f"{type(model).__name__} is not supported: {len(recorder.shapes)} of its {layers} layers attend through "
            "transformers' attention interface."
        )
    shapes = [recorder.shapes[layer] for layer in range(layers)]
    _check_windows(model, config, shapes)
    return shapes


def verify(backend: TransformersBackend, reference: torch.Tensor) -> None:
    """Compare ``reference`` with our logits for the probe tokens, prefilled in two chunks and a decode.

    Uses the pool's last blocks. Raises ModelLoadError where they differ.
    """
    tokens = probe_tokens(backend.vocabulary_size)
    blocks = -(-len(tokens) // backend.block_size)
    if backend.total_blocks < blocks:
        raise ModelLoadError(f"The KV pool is too small: {backend.total_blocks} blocks of {backend.block_size} tokens.")
    table = list(range(backend.total_blocks - 1, backend.total_blocks - 1 - blocks, -1))
    greedy = Sampler()
    backend.run([Chunk(tokens[:17], 0, table)])
    backend.run([Chunk(tokens[17:-1], 17, table, greedy)])
    logits = backend.logits([Chunk(tokens[-1:], len(tokens) - 1, table, greedy)], [0]).float()
    error = float((logits - reference).norm() / reference.norm())
    allowed = _TOLERANCE[getattr(torch, backend.dtype)]
    if not error <= allowed:  # NaN too
        raise ModelLoadError(
            f"This architecture is not supported: its logits with paged attention differ from its own by {error:.2g} "
            f"(relative; {allowed} is allowed)."
        )


def _check_windows(model: Any, config: Any, shapes: Sequence[LayerShape]) -> None:
    """Windows act beyond the probe's length, so that a comparison of logits would not notice a hidden one."""
    kinds = getattr(config, "layer_types", None) or [
        "full_attention" if getattr(config, "sliding_window", None) is None else "sliding_attention"
    ] * len(shapes)
    for layer, (kind, shape) in enumerate(zip(kinds, shapes, strict=False)):
        windowed = kind == "sliding_attention" and getattr(config, "sliding_window", None) is not None
        if kind not in ("full_attention", "sliding_attention") or windowed != (shape.sliding_window is not None):
            raise ModelLoadError(
                f"{type(model).__name__} is not supported: its layer {layer} has {kind.replace('_', ' ')} which it "
                "does not pass to transformers' attention interface."
            )


def _vocabulary(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])
