"""Modules over the native layers, which stand in for a model's own: prepacked weights, products joined to fewer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from pagoda_inference.model.paged_attention import PagedStep, given
from pagoda_kernels.native.arguments import LinearArguments
from pagoda_kernels.native.library import NativeLibrary
from pagoda_kernels.native.quantization import quantize


class PackedModules:
    """Makes them of a model's own modules, for ``fusion.fuse`` to compare.

    bits: of weights, by the linear layer that is not part of a larger module; of_parts: of the others'.
    """

    def __init__(self, native: NativeLibrary, bits: Mapping[nn.Module, int], of_parts: int) -> None:
        self._native = native
        self._bits = bits
        self._of_parts = of_parts

    def linear(self, module: nn.Linear) -> nn.Module:
        return PackedLinear(self._native, module, bits=self._bits.get(module, 0))

    def mlps(self, module: Any) -> Iterator[nn.Module]:
        yield PackedMlp(self._native, module, self._of_parts)

    def norms(self, module: Any) -> Iterator[nn.Module]:
        if hasattr(module, "variance_epsilon"):
            yield PackedRmsNorm(self._native, module)

    def attention(self, module: Any, parameters: dict[str, Any]) -> nn.Module:
        return PackedAttention(self._native, module, parameters, self._of_parts)


class PackedLinear(nn.Module):
    """One or several linear layers of the same input as a single product: [..., inner] -> [..., sum of columns].

    bits: 0 to keep the weights' number format, 4 or 8 for groups of 32 integers.
    """

    def __init__(self, native: NativeLibrary, *layers: nn.Linear, bits: int = 0) -> None:
        super().__init__()
        self._native = native
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self.in_features, self.out_features, self.bits = layers[0].in_features, weight.shape[0], bits
        biased = any(layer.bias is not None for layer in layers)
        biases = [
            weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias.detach() for layer in layers
        ]
        self.packed = native.pack_quantized(quantize(weight, bits)) if bits else native.pack(weight)
        self.bias = torch.cat(biases) if biased else None
        self.weight = weight.to("meta")
        """For code that asks for a layer's dtype or shape; the numbers are in ``packed``."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.bits:
            return self._native.quantized_linear(inputs, self.packed, self.bits, self.bias, self.out_features)
        return self._native.linear(inputs, self.packed, self.bias, self.out_features)

    def arguments(self) -> LinearArguments:
        """For native code that calls the product itself."""
        bias = None if self.bias is None else self.bias.data_ptr()
        return LinearArguments(self.packed.data_ptr(), bias, self.out_features, self.in_features, self.bits)


class PackedMlp(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, native: NativeLibrary, mlp: Any, bits: int = 0) -> None:
        super().__init__()
        self._native = native
        self.gate_up = PackedLinear(native, mlp.gate_proj, mlp.up_proj, bits=bits)
        self.down = PackedLinear(native, mlp.down_proj, bits=bits)

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

    def __init__(self, native: NativeLibrary, attention: Any, parameters: dict[str, Any], bits: int = 0) -> None:
        super().__init__()
        self._native = native
        self.layer_idx = int(attention.layer_idx)
        self.head_dim = int(attention.head_dim)
        self.qkv = PackedLinear(native, attention.q_proj, attention.k_proj, attention.v_proj, bits=bits)
        self.output = PackedLinear(native, attention.o_proj, bits=bits)
        self.query_heads = attention.q_proj.out_features // self.head_dim
        self.kv_heads = attention.k_proj.out_features // self.head_dim
        self.parameters_of_attention = parameters

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        *,
        paged_step: PagedStep | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        cosine, sine = position_embeddings
        heads = self.qkv(hidden_states[0]).view(-1, self.query_heads + 2 * self.kv_heads, self.head_dim)
        rotated = self.query_heads + self.kv_heads
        self._native.rotate(heads[:, :rotated, : cosine.shape[-1]], cosine[0], sine[0])  # some models rotate a part
        attended = given(paged_step).attend(
            self.layer_idx,
            heads[:, : self.query_heads],
            heads[:, self.query_heads : rotated],
            heads[:, rotated:],
            **self.parameters_of_attention,
        )
        return self.output(attended.flatten(1))[None], None
