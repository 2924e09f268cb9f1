"""A decoder layer of the llama kind as one native call: thirty calls a step, where torch makes several hundred."""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
from torch import nn

from pagoda_inference.model.packed_modules import PackedAttention, PackedMlp, PackedRmsNorm
from pagoda_inference.model.paged_attention import PagedStep, given
from pagoda_kernels import Kernels, PagedBatch
from pagoda_kernels.native.arguments import AttentionArguments, LayerArguments
from pagoda_kernels.native.library import NativeLibrary

_PARTS = {
    "self_attn": PackedAttention,
    "mlp": PackedMlp,
    "input_layernorm": PackedRmsNorm,
    "post_attention_layernorm": PackedRmsNorm,
}


class PooledStep(PagedStep, Protocol):
    """A step whose pools native code may write to and read itself."""

    batch: PagedBatch

    def pools(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys [blocks, kv_heads, key_size, block_size] and values [blocks, kv_heads, block_size, value_size]."""
        ...


class PackedLayer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)). Steps that have no ``pools`` take the layer's own code.

    layer: a decoder layer with packed parts. Its attributes stay to be read here.
    """

    def __init__(self, native: NativeLibrary, layer: Any) -> None:
        super().__init__()
        self._native = native
        self.own = layer
        attention: PackedAttention = layer.self_attn
        self._layer = attention.layer_idx
        parameters = attention.parameters_of_attention
        sinks = parameters["sinks"]
        self._sinks = None if sinks is None else sinks.float().contiguous()
        self._arguments = LayerArguments(
            qkv=attention.qkv.arguments(),
            output=attention.output.arguments(),
            gate_up=layer.mlp.gate_up.arguments(),
            down=layer.mlp.down.arguments(),
            input_norm=layer.input_layernorm.weight.data_ptr(),
            post_norm=layer.post_attention_layernorm.weight.data_ptr(),
            input_epsilon=layer.input_layernorm.epsilon,
            post_epsilon=layer.post_attention_layernorm.epsilon,
            attention=AttentionArguments(
                sinks=None if self._sinks is None else self._sinks.data_ptr(),
                query_heads=attention.query_heads,
                kv_heads=attention.kv_heads,
                head_size=attention.head_dim,
                value_size=attention.head_dim,
                window=parameters["sliding_window"] or 0,
                scaling=parameters["scaling"],
                softcap=parameters["softcap"] or 0.0,
            ),
        )

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("own"), name)

    def forward(
        self,
        hidden_states: torch.Tensor,
        *positional: Any,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        paged_step: Any = None,
        **keywords: Any,
    ) -> torch.Tensor:
        step = given(paged_step)
        if positional or position_embeddings is None or not hasattr(step, "pools"):
            output: torch.Tensor = self.own(
                hidden_states, *positional, position_embeddings=position_embeddings, paged_step=paged_step, **keywords
            )
            return output
        return self._whole(hidden_states, position_embeddings, cast("PooledStep", step))

    def _whole(
        self, hidden: torch.Tensor, embeddings: tuple[torch.Tensor, torch.Tensor], step: PooledStep
    ) -> torch.Tensor:
        hidden = hidden.contiguous()
        cosine, sine = embeddings[0].contiguous(), embeddings[1].contiguous()
        key_pool, value_pool = step.pools(self._layer)
        batch = step.batch
        result = torch.empty_like(hidden)
        arguments = self._arguments
        arguments.key_pool, arguments.value_pool = key_pool.data_ptr(), value_pool.data_ptr()
        arguments.slots = batch.slots.data_ptr()
        arguments.input, arguments.result = hidden.data_ptr(), result.data_ptr()
        arguments.cosine, arguments.sine = cosine.data_ptr(), sine.data_ptr()
        arguments.rows, arguments.rotary_size = hidden.shape[1], cosine.shape[-1]
        attention = arguments.attention
        attention.query_starts = batch.query_starts.data_ptr()
        attention.context_lengths = batch.context_lengths.data_ptr()
        attention.block_tables = batch.block_tables.data_ptr()
        attention.table_stride = batch.block_tables.stride(0)
        attention.sequences = batch.context_lengths.shape[0]
        attention.block_size = value_pool.shape[2]
        attention.threads = torch.get_num_threads()
        self._native.decoder_layer(hidden.dtype, arguments)
        return result


def whole_layer(
    native: NativeLibrary, kernels: Kernels, layer: Any, rows: int, rotary: list[int]
) -> PackedLayer | None:
    """What stands in for ``layer``; None where it is no layer of the known kind, or computes anything else.

    Both are compared, bit for bit, on ``rows`` random tokens; rotary: sizes of the rotation that its heads allow.
    """
    parts = dict(layer.named_children())
    if set(parts) != set(_PARTS) or any(type(parts[name]) is not kind for name, kind in _PARTS.items()):
        return None
    attention: PackedAttention = layer.self_attn
    dtypes = {norm.weight.dtype for norm in (layer.input_layernorm, layer.post_attention_layernorm)}
    if dtypes != {attention.output.weight.dtype}:
        return None
    replacement = PackedLayer(native, layer)
    generator = torch.Generator().manual_seed(rows)
    dtype = attention.output.weight.dtype
    hidden = torch.randn(1, rows, attention.qkv.in_features, generator=generator).to(dtype)
    for size in rotary:
        angles = torch.randn(1, rows, size // 2, generator=generator).repeat(1, 1, 2)
        embeddings = (angles.cos().to(dtype), angles.sin().to(dtype))
        try:
            expected = layer(
                hidden, attention_mask=None, position_embeddings=embeddings, paged_step=_Step(attention, kernels, rows)
            )
        except (TypeError, ValueError, KeyError, RuntimeError):
            return None  # a layer of another signature
        actual = replacement(hidden, position_embeddings=embeddings, paged_step=_Step(attention, kernels, rows))
        if not isinstance(expected, torch.Tensor) or not torch.equal(expected, actual):
            return None
    return replacement


class _Step:
    """A PooledStep over ``rows`` tokens of two sequences that have a token each behind them, in blocks of 4."""

    _BLOCK_SIZE = 4

    def __init__(self, attention: PackedAttention, kernels: Kernels, rows: int) -> None:
        self._kernels = kernels
        lengths = [rows - 1, 1]
        blocks = -(-rows // self._BLOCK_SIZE)
        tables = torch.arange(2 * blocks, dtype=torch.int32).flip(0).view(2, blocks).contiguous()
        slots = [
            int(tables[row, position // self._BLOCK_SIZE]) * self._BLOCK_SIZE + position % self._BLOCK_SIZE
            for row, length in enumerate(lengths)
            for position in range(1, 1 + length)
        ]
        shape = (2 * blocks, attention.kv_heads, attention.head_dim, self._BLOCK_SIZE)
        keys = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(attention.output.weight.dtype)
        self._pools = keys, keys.transpose(2, 3).contiguous()
        self.batch = PagedBatch(
            query_starts=torch.tensor([0, rows - 1, rows], dtype=torch.int32),
            context_lengths=torch.tensor([1 + length for length in lengths], dtype=torch.int32),
            block_tables=tables,
            slots=torch.tensor(slots),
        )

    def pools(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._pools

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **parameters: Any
    ) -> torch.Tensor:
        self._kernels.write_kv(key, value, *self._pools, self.batch.slots)
        return self._kernels.paged_attention(query, *self._pools, self.batch, **parameters)
