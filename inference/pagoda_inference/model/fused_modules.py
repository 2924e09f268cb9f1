"""Modules over the layers of a GPU's kernels, which stand in for a model's own: products joined to fewer, one launch
where torch needs several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from pagoda_inference.model.paged_attention import PagedStep, given
from pagoda_kernels.kernels import Layers

WIDEST = 16384
"""Numbers of a row that Triton's norm takes."""


class FusedModules:
    """Makes them of a model's own modules, for ``fusion.fuse`` to compare."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers

    def linear(self, module: nn.Linear) -> None:
        """A product alone stays the vendor's."""

    def mlps(self, module: Any) -> Iterator[nn.Module]:
        for activation in ("silu", "gelu_tanh"):
            yield FusedMlp(self._layers, module, activation)

    def norms(self, module: Any) -> Iterator[nn.Module]:
        epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        if isinstance(epsilon, float) and len(module.weight) <= WIDEST:
            for unit_offset in (False, True):
                yield FusedRmsNorm(self._layers, module.weight, epsilon, unit_offset)

    def attention(self, module: Any, parameters: dict[str, Any]) -> nn.Module:
        return FusedAttention(self._layers, module, parameters)


def joined(*linear: nn.Linear) -> nn.Linear:
    """Linear layers of the same input as one: [..., inner] -> [..., sum of columns]."""
    weight = torch.cat([layer.weight.detach() for layer in linear])
    one = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    one.weight = nn.Parameter(weight, requires_grad=False)
    if any(layer.bias is not None for layer in linear):
        biases = [
            layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias.detach()
            for layer in linear
        ]
        one.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    return one


class FusedMlp(nn.Module):
    """down(activation(gate(x)) * up(x)); activation: silu or gelu_tanh."""

    def __init__(self, layers: Layers, mlp: Any, activation: str) -> None:
        super().__init__()
        self._layers = layers
        self._activation = activation
        self.gate_up = joined(mlp.gate_proj, mlp.up_proj)
        self.down = mlp.down_proj

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        gate_up = self.gate_up(inputs.flatten(0, -2))
        hidden: torch.Tensor = self.down(self._layers.gated_activation(gate_up, self._activation))
        return hidden.view(*inputs.shape[:-1], -1)


class FusedRmsNorm(nn.Module):
    """weight * x / sqrt(mean(x^2) + epsilon), or 1 + weight where that is how it is kept."""

    def __init__(self, layers: Layers, weight: nn.Parameter, epsilon: float, unit_offset: bool) -> None:
        super().__init__()
        self._layers = layers
        self._unit_offset = unit_offset
        self.weight = weight
        self.epsilon = epsilon

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = inputs.reshape(-1, inputs.shape[-1])
        normal = self._layers.rms_norm(rows, self.weight, self.epsilon, unit_offset=self._unit_offset)
        return normal.view(inputs.shape)


class FusedAttention(nn.Module):
    """Query, key and value in one product, rotated in place, attended, projected.

    parameters: what the original calls its attention with.
    """

    def __init__(self, layers: Layers, attention: Any, parameters: dict[str, Any]) -> None:
        super().__init__()
        self._layers = layers
        self.layer_idx = int(attention.layer_idx)
        self.head_dim = int(attention.head_dim)
        self.qkv = joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self.output = attention.o_proj
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
        cosine, sine = (each[0, :, : each.shape[-1] // 2] for each in position_embeddings)  # halves are the same
        heads = self.qkv(hidden_states[0]).view(-1, self.query_heads + 2 * self.kv_heads, self.head_dim)
        query, key, value = heads.split([self.query_heads, self.kv_heads, self.kv_heads], dim=1)
        self._layers.rotate(query, key, cosine, sine)
        attended = given(paged_step).attend(self.layer_idx, query, key, value, **self.parameters_of_attention)
        return self.output(attended.flatten(1))[None], None
