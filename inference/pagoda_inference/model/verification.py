"""Finding out, before serving, that a model really runs on our attention and computes what its own code computes.

An architecture that ignores the registered attention function fails silently, with plausible text. So each load runs
a few dozen tokens through the model's own eager attention, and through ours, and compares logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.architecture import context_length
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.kv_memory import LayerShape
from pagoda_inference.model.paged_attention import PROBE, MaskRule, StepMissing, hand_on
from pagoda_inference.model.paged_model import forward
from pagoda_inference.model.probe_step import ProbeStep
from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_kernels import Kernels

_PROBE_TOKENS = 40
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
"""Greatest relative error of a logits row (2-norm): far above rounding, far below any real difference (about 1)."""


def probe_tokens(vocabulary_size: int) -> list[int]:
    """Fixed, varied token ids."""
    return [(7 + 7919 * index) % vocabulary_size for index in range(_PROBE_TOKENS)]


@torch.inference_mode()
def reference_logits(model: Any) -> torch.Tensor:
    """Logits [1, V] after the probe tokens by the model's own eager attention. Raises ModelLoadError."""
    tokens = torch.tensor([probe_tokens(_vocabulary(model))], device=model.device)
    with _refusing_to_fail(model):
        model.set_attn_implementation("eager")
        logits: torch.Tensor = model(input_ids=tokens, use_cache=False, return_dict=True).logits[0, -1:].float()
    if not bool(logits.isfinite().all()):
        raise ModelLoadError(
            f"The logits of this model in {str(model.dtype).removeprefix('torch.')} are not numbers: its weights are "
            "damaged, or need another dtype."
        )
    return logits


@torch.inference_mode()
def layer_shapes(model: Any, kernels: Kernels) -> list[LayerShape]:
    """KV geometry of each layer, recorded from the calls of a probe run.

    Raises ModelLoadError where a layer never calls the attention function or calls it twice, calls it with something
    that paged attention does not know, or hides from it which tokens may be seen.
    """
    tokens = torch.tensor(probe_tokens(_vocabulary(model)), device=model.device)
    recorder = ProbeStep(kernels)
    positions = torch.arange(len(tokens), device=model.device)
    last = torch.tensor([len(tokens) - 1], device=model.device)
    with _refusing_to_fail(model):
        model.set_attn_implementation(PROBE)
        try:
            forward(model, tokens, positions, last, recorder)
        except StepMissing:
            hand_on(model)
            forward(model, tokens, positions, last, recorder)
    config = model.config.get_text_config()
    layers = int(config.num_hidden_layers)
    if sorted(recorder.shapes) != list(range(layers)):
        raise _refusal(
            model, f"{len(recorder.shapes)} of its {layers} layers attend through transformers' attention interface"
        )
    if max(recorder.calls.values()) > 1:
        raise _refusal(model, "its layers attend several times for a token, and each time to other KV")
    if recorder.unknown:
        names = ", ".join(sorted(recorder.unknown))
        raise _refusal(model, f"its attention depends on {names}, which paged attention does not know")
    for layer in range(layers):
        if fault := _mask_fault(recorder, layer, config, context_length(config)):
            raise _refusal(model, f"its layer {layer} {fault}")
    return [recorder.shapes[layer] for layer in range(layers)]


def verify(backend: TransformersBackend, reference: torch.Tensor, allowed: float | None = None) -> None:
    """Compare ``reference`` with our logits for the probe tokens, prefilled in two chunks and a decode.

    allowed: the greatest relative error; None: what the dtype explains. Uses the pool's last blocks.
    Raises ModelLoadError where they differ.
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
    allowed = _TOLERANCE[getattr(torch, backend.dtype)] if allowed is None else allowed
    if not error <= allowed:  # NaN too
        raise ModelLoadError(
            f"This architecture is not supported: its logits with paged attention differ from its own by {error:.2g} "
            f"(relative; {allowed} is allowed)."
        )


def _mask_fault(recorder: ProbeStep, layer: int, config: Any, context: int) -> str:
    """What is wrong with the tokens that a layer sees; nothing where they are what its calls say.

    Windows act beyond the probe's length, so that a comparison of logits would not notice a hidden one.
    """
    window, rule = recorder.shapes[layer].sliding_window, recorder.masks[layer]
    if rule is None:
        return "" if _configured_as(window, layer, config) else "has a window or a kind that its calls do not say"
    if sees(rule, context - 1, -1):
        return "sees tokens that come later: it is an encoder's"
    distances = {0, context - 1, *(base**power for base in (2, 3) for power in range(24))}
    distances |= set() if window is None else {window - 1, window}
    for distance in sorted(distances):
        if distance < context and sees(rule, context - 1, distance) != (window is None or distance < window):
            return f"sees other tokens {distance} positions back than it tells transformers' attention interface"
    return ""


def sees(rule: MaskRule, position: int, distance: int) -> bool:
    """Whether the token at ``position`` sees the one ``distance`` before it."""
    zero, query = torch.tensor(0), torch.tensor(position)
    return bool(rule(zero, zero, query, query - distance))


def _configured_as(window: int | None, layer: int, config: Any) -> bool:
    """Without a mask to ask: whether the configuration has ``layer`` attend to all, or with a window, as called."""
    configured = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    kind = kinds[layer] if kinds else "full_attention" if configured is None else "sliding_attention"
    windowed = kind == "sliding_attention" and configured is not None
    return kind in ("full_attention", "sliding_attention") and windowed == (window is not None)


@contextmanager
def _refusing_to_fail(model: Any) -> Iterator[None]:
    """What a model's own code raises when it gets a stream of tokens becomes a ModelLoadError."""
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        where = f"running it on {_PROBE_TOKENS} tokens raises"
        raise _refusal(model, f"{where} {type(error).__name__}: {reason}") from error


def _refusal(model: Any, reason: str) -> ModelLoadError:
    return ModelLoadError(f"{type(model).__name__} is not supported: {reason}.")


def _vocabulary(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])
