"""Faster modules in place of transformers' own: fewer, larger matrix products, on CPUs with prepacked weights.

Generic, not by model: a module is replaced where it has the parts of the known kind (a gated MLP, attention of four
projections, a root mean square norm, a linear layer) *and* the replacement gives the same numbers for random input.
Whatever does not match stays as it is. A decoder layer whose parts were all replaced may then become one native call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn

from pagoda_inference.model.fused_modules import FusedModules
from pagoda_inference.model.packed_layer import whole_layer
from pagoda_inference.model.packed_modules import PackedAttention, PackedModules
from pagoda_inference.model.paged_attention import NAME
from pagoda_inference.model.probe_step import ProbeStep
from pagoda_inference.model.quantized import bits_of
from pagoda_kernels import Kernels
from pagoda_kernels.native.library import NativeLibrary
from pagoda_kernels.native.quantization import GROUP

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Greatest relative error (2-norm) of a replacement: rounding only."""
_TOLERANCE_OF_ROUNDED_INPUTS = 1e-1
"""The same where inputs are rounded to 8 bits on the way into a product."""
_PROBE_ROWS = 5
_BYTES_OF_FACTORS = 4
"""A group's scale and minimum, each in float16."""


@torch.inference_mode()
def fuse(model: Any, kernels: Kernels, bits: int = 0) -> Counter[str]:
    """Replace modules of ``model`` in place; how many of each kind. Nothing without native kernels for its dtype, or
    the layers of a GPU's.

    bits: 4 or 8 for weights that ``quantized.round_weights`` has rounded, 0 for weights as they are.
    """
    native = kernels.native
    modules: _Modules
    if native is not None and native.supports(model.dtype):
        modules = PackedModules(native, bits_of(model, bits), bits)
    elif kernels.layers is not None and model.dtype in _TOLERANCE and not bits:
        modules = FusedModules(kernels.layers)
    else:
        return Counter()
    model.set_attn_implementation(NAME)
    fusion = _Fusion(model, kernels, modules, bits)
    fusion.replace_parts()
    if native is not None:
        fusion.replace_layers(native)
    return fusion.replaced


def head_copy_bytes(model: Any, kernels: Kernels, bits: int = 0) -> int:
    """Bytes of the packed head that ``fuse`` makes beside the embedding that shares its weight: 0 where it shares none,
    or nothing will be packed. Other packed weights take the room of their originals.

    model: its weights as they were loaded. bits: as for ``fuse``.
    """
    head = model.get_output_embeddings()
    if kernels.native is None or not kernels.native.supports(model.dtype) or type(head) is not nn.Linear:
        return 0
    if head.weight is not model.get_input_embeddings().weight:
        return 0
    head_bits = bits_of(model, bits).get(head, 0)
    if not head_bits:
        return int(head.weight.nbytes)
    groups = head.out_features * -(-head.in_features // GROUP)
    return groups * (GROUP * head_bits // 8 + _BYTES_OF_FACTORS)


class _Modules(Protocol):
    """What may stand in for modules of a known kind, in the order in which it is compared with them."""

    def linear(self, module: nn.Linear) -> nn.Module | None: ...
    def mlps(self, module: Any) -> Iterator[nn.Module]: ...
    def norms(self, module: Any) -> Iterator[nn.Module]: ...
    def attention(self, module: Any, parameters: dict[str, Any]) -> nn.Module: ...


class _Fusion:
    """One model's replacements. replaced: how many of each kind."""

    def __init__(self, model: Any, kernels: Kernels, modules: _Modules, bits: int) -> None:
        self.replaced: Counter[str] = Counter()
        self._model = model
        self._kernels = kernels
        self._modules = modules
        self._bits = bits
        self._rotary: dict[int, list[int]] = {}

    def replace_parts(self) -> None:
        parents = [self._model]
        while parents:
            parent = parents.pop()
            for name, child in list(parent.named_children()):
                replacement = self._replacement(child)
                if replacement is None:
                    parents.append(child)
                else:
                    self._put(parent, name, replacement)

    def replace_layers(self, native: NativeLibrary) -> None:
        """Layers whose parts have been replaced."""
        for parent in list(self._model.modules()):
            for name, child in list(parent.named_children()):
                attention = getattr(child, "self_attn", None)
                if isinstance(attention, PackedAttention):
                    sizes = self._rotary[attention.layer_idx]
                    layer = whole_layer(native, self._kernels, child, _PROBE_ROWS, sizes)
                    if layer is not None:
                        self._put(parent, name, layer)

    def _put(self, parent: nn.Module, name: str, replacement: nn.Module) -> None:
        setattr(parent, name, replacement)
        self.replaced[type(replacement).__name__] += 1

    def _replacement(self, module: Any) -> nn.Module | None:
        """What stands in for ``module``, already compared with it; None where nothing does."""
        if type(module) is nn.Linear and module.weight.dtype in _TOLERANCE:
            linear = self._modules.linear(module)
            return None if linear is None else self._first_same(module, iter([linear]), module.in_features)
        parts = dict(module.named_children())
        if set(parts) == {"gate_proj", "up_proj", "down_proj", "act_fn"} and _all_linear(parts, but="act_fn"):
            return self._first_same(module, self._modules.mlps(module), module.gate_proj.in_features)
        if type(module).__name__.endswith("RMSNorm") and not parts and _has_weight(module):
            return self._first_same(module, self._modules.norms(module), module.weight.shape[-1])
        if (
            set(parts) == {"q_proj", "k_proj", "v_proj", "o_proj"}
            and _all_linear(parts)
            and hasattr(module, "head_dim")
        ):
            return self._attention(module)
        return None

    def _attention(self, module: Any) -> nn.Module | None:
        """All of a head may be rotated, or its first part alone: sizes that the module's own code takes."""
        hidden = _random(module, module.q_proj.in_features)
        step = ProbeStep(self._kernels)
        replacement = None
        sizes = []
        for size in (module.head_dim, module.head_dim // 2):
            angles = _random(module, size // 2, rows=_PROBE_ROWS).repeat(1, 1, 2)
            embeddings = (angles.cos(), angles.sin())
            try:
                expected, _ = module(hidden, position_embeddings=embeddings, attention_mask=None, paged_step=step)
                if replacement is None:
                    parameters = step.parameters[int(module.layer_idx)]
                    replacement = self._modules.attention(module, parameters)
                actual, _ = replacement(hidden, embeddings, paged_step=step)
            except (TypeError, ValueError, KeyError, RuntimeError):
                break  # attention of another signature, or of whole heads alone
            if not self._close(expected, actual):
                return None
            sizes.append(size)
        if replacement is None or not sizes:  # nothing was compared
            return None
        self._rotary[int(module.layer_idx)] = sizes
        return replacement

    def _first_same(self, module: Any, replacements: Iterator[nn.Module], size: int) -> nn.Module | None:
        """The first that does to random numbers [1, rows, size] what ``module`` does."""
        inputs = _random(module, size)
        return next((each for each in replacements if self._close(module(inputs), each(inputs))), None)

    def _close(self, expected: torch.Tensor, actual: torch.Tensor) -> bool:
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            return False
        tolerance = max(_TOLERANCE[expected.dtype], _TOLERANCE_OF_ROUNDED_INPUTS if self._bits else 0)
        allowed = tolerance * expected.float().norm()
        return bool((expected.float() - actual.float()).norm() <= allowed)


def _all_linear(parts: dict[str, nn.Module], but: str = "") -> bool:
    dtypes = {part.weight.dtype for name, part in parts.items() if name != but and type(part) is nn.Linear}
    linear = all(type(part) is nn.Linear for name, part in parts.items() if name != but)
    return linear and len(dtypes) == 1 and dtypes <= set(_TOLERANCE)


def _has_weight(module: Any) -> bool:
    return isinstance(getattr(module, "weight", None), nn.Parameter)


def _random(module: Any, size: int, rows: int = _PROBE_ROWS) -> torch.Tensor:
    """Repeatable numbers [1, rows, size] in the module's dtype, on its device."""
    return torch.randn(1, rows, size, generator=torch.Generator().manual_seed(size)).to(next(module.parameters()))
