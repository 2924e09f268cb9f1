"""Faster modules in place of transformers' own on CPUs: fewer, larger matrix products with prepacked weights.

Generic, not by model: a module is replaced where it has the parts of the known kind (a gated MLP, attention of four
projections, a root mean square norm, a linear layer) *and* the replacement gives the same numbers for random input.
Whatever does not match stays as it is.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn

from pagoda_inference.model.paged_attention import NAME, PagedStep
from pagoda_inference.model.probe_step import ProbeStep
from pagoda_kernels import Kernels
from pagoda_kernels.native.library import NativeLibrary

_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
"""Greatest relative error (2-norm) of a replacement: rounding only."""
_PROBE_ROWS = 5


class PackedLinear(nn.Module):
    """One or several linear layers of the same input as a single product: [..., inner] -> [..., sum of columns]."""

    def __init__(self, native: NativeLibrary, *layers: nn.Linear) -> None:
        super().__init__()
        self._native = native
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self.in_features, self.out_features = layers[0].in_features, weight.shape[0]
        biased = any(layer.bias is not None for layer in layers)
        biases = [
            weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias.detach() for layer in layers
        ]
        self.packed = native.pack(weight)
        self.bias = torch.cat(biases) if biased else None
        self.weight = weight.to("meta")
        """For code that asks for a layer's dtype or shape; the numbers are in ``packed``."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self._native.linear(inputs, self.packed, self.bias, self.out_features)


class PackedMlp(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, native: NativeLibrary, mlp: Any) -> None:
        super().__init__()
        self._native = native
        self.gate_up = PackedLinear(native, mlp.gate_proj, mlp.up_proj)
        self.down = PackedLinear(native, mlp.down_proj)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.down(self._native.silu_multiply(self.gate_up(inputs)))
        return hidden


class PackedRmsNorm(nn.Module):
    """weight * x / sqrt(mean(x^2) + epsilon)."""

    def __init__(self, native: NativeLibrary, norm: Any) -> None:
        super().__init__()
        self._native = native
        self.weight = norm.weight
        self.epsilon = float(norm.variance_epsilon)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self._native.rms_norm(inputs.contiguous(), self.weight, self.epsilon)


class PackedAttention(nn.Module):
    """Query, key and value in one product, rotated in place, attended, projected.

    parameters: what the original calls its attention with.
    """

    def __init__(self, native: NativeLibrary, attention: Any, parameters: dict[str, Any]) -> None:
        super().__init__()
        self._native = native
        self.layer_idx = int(attention.layer_idx)
        self.head_dim = int(attention.head_dim)
        self.qkv = PackedLinear(native, attention.q_proj, attention.k_proj, attention.v_proj)
        self.output = PackedLinear(native, attention.o_proj)
        self.query_heads = attention.q_proj.out_features // self.head_dim
        self.kv_heads = attention.k_proj.out_features // self.head_dim
        self._parameters_of_attention = parameters

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        *,
        paged_step: PagedStep,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        cosine, sine = position_embeddings
        heads = self.qkv(hidden_states[0]).view(-1, self.query_heads + 2 * self.kv_heads, self.head_dim)
        rotated = self.query_heads + self.kv_heads
        self._native.rotate(heads[:, :rotated], cosine[0], sine[0])
        attended = paged_step.attend(
            self.layer_idx,
            heads[:, : self.query_heads],
            heads[:, self.query_heads : rotated],
            heads[:, rotated:],
            **self._parameters_of_attention,
        )
        return self.output(attended.flatten(1))[None], None


@torch.inference_mode()
def fuse(model: Any, kernels: Kernels) -> Counter[str]:
    """Replace modules of ``model`` in place; how many of each kind. Nothing without native kernels for its dtype."""
    native = kernels.native
    replaced: Counter[str] = Counter()
    if native is None or not native.supports(model.dtype):
        return replaced
    model.set_attn_implementation(NAME)
    parents = [model]
    while parents:
        parent = parents.pop()
        for name, child in list(parent.named_children()):
            replacement = _replacement(child, kernels, native)
            if replacement is None:
                parents.append(child)
            else:
                setattr(parent, name, replacement)
                replaced[type(replacement).__name__] += 1
    return replaced


def _replacement(module: Any, kernels: Kernels, native: NativeLibrary) -> nn.Module | None:
    """What stands in for ``module``, already compared with it; None where nothing does."""
    if type(module) is nn.Linear and module.weight.dtype in _TOLERANCE:
        return _same(module, PackedLinear(native, module), _random(module, module.in_features))
    parts = dict(module.named_children())
    if set(parts) == {"gate_proj", "up_proj", "down_proj", "act_fn"} and _all_linear(parts, but="act_fn"):
        return _same(module, PackedMlp(native, module), _random(module, module.gate_proj.in_features))
    if type(module).__name__.endswith("RMSNorm") and not parts and hasattr(module, "variance_epsilon"):
        return _same(module, PackedRmsNorm(native, module), _random(module, module.weight.shape[-1]))
    if set(parts) == {"q_proj", "k_proj", "v_proj", "o_proj"} and _all_linear(parts) and hasattr(module, "head_dim"):
        return _attention(module, kernels, native)
    return None


def _attention(module: Any, kernels: Kernels, native: NativeLibrary) -> nn.Module | None:
    hidden = _random(module, module.q_proj.in_features)
    angles = _random(module, module.head_dim // 2, rows=_PROBE_ROWS).repeat(1, 1, 2)
    embeddings = (angles.cos(), angles.sin())
    step = ProbeStep(kernels)
    try:
        expected, _ = module(hidden, position_embeddings=embeddings, attention_mask=None, paged_step=step)
        replacement = PackedAttention(native, module, step.parameters[int(module.layer_idx)])
        actual, _ = replacement(hidden, embeddings, paged_step=step)
    except (TypeError, ValueError, KeyError, RuntimeError):
        return None  # attention of another signature
    return replacement if _close(expected, actual) else None


def _same(module: Any, replacement: nn.Module, inputs: torch.Tensor) -> nn.Module | None:
    return replacement if _close(module(inputs), replacement(inputs)) else None


def _close(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    allowed = _TOLERANCE[expected.dtype] * expected.float().norm()
    return bool((expected.float() - actual.float()).norm() <= allowed)


def _all_linear(parts: dict[str, nn.Module], but: str = "") -> bool:
    dtypes = {part.weight.dtype for name, part in parts.items() if name != but and type(part) is nn.Linear}
    linear = all(type(part) is nn.Linear for name, part in parts.items() if name != but)
    return linear and len(dtypes) == 1 and dtypes <= set(_TOLERANCE)


def _random(module: Any, size: int, rows: int = _PROBE_ROWS) -> torch.Tensor:
    """Repeatable numbers [1, rows, size] in the module's dtype."""
    dtype = next(module.parameters()).dtype
    return torch.randn(1, rows, size, generator=torch.Generator().manual_seed(size)).to(dtype)
