"""The keys and values of a step's tokens are stored in their slots of the pools."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda_kernels.triton_attention.tiling import Budget, power_of_two
from pagoda_kernels.triton_layers.float8 import encode_float8

BUDGET = Budget(registers=48, shared_bytes=0)

TILE = 2048
"""Numbers of a token's keys (or values) that a program takes: whole heads."""


@triton.jit
def _store(
    source,
    pool,
    scale,
    heads,
    kv_heads,
    token_offset,
    pool_offset,
    head_stride,
    dimension_stride,
    pool_head_stride,
    pool_dimension_stride,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Heads ``heads`` of one token: numbers at source + token_offset to pool + pool_offset."""
    dimensions = tl.arange(0, WIDTH)
    inside = (heads < kv_heads)[:, None] & (dimensions < SIZE)[None, :]
    offsets = token_offset + heads[:, None] * head_stride + dimensions[None, :] * dimension_stride
    numbers = tl.load(source + offsets, mask=inside, other=0.0)
    if scale is not None:
        divisors = tl.load(scale + heads, mask=heads < kv_heads, other=1.0)
        numbers = tl.div_rn(numbers.to(tl.float32), tl.broadcast_to(divisors[:, None], numbers.shape))
    if pool.dtype.element_ty == tl.uint8:
        stored = encode_float8(numbers.to(tl.float32))
    else:
        stored = numbers.to(pool.dtype.element_ty)
    places = pool_offset + heads[:, None] * pool_head_stride + dimensions[None, :] * pool_dimension_stride
    tl.store(pool + places, stored, mask=inside)


@triton.jit
def write_kv_kernel(
    keys,
    values,
    key_pool,
    value_pool,
    slots,
    key_scale,
    value_scale,
    kv_heads,
    key_token_stride,
    key_head_stride,
    key_dimension_stride,
    value_token_stride,
    value_head_stride,
    value_dimension_stride,
    key_pool_block_stride,
    key_pool_head_stride,
    key_pool_dimension_stride,
    key_pool_slot_stride,
    value_pool_block_stride,
    value_pool_head_stride,
    value_pool_slot_stride,
    value_pool_dimension_stride,
    BLOCK_SIZE: tl.constexpr,
    KEY_SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    KEY_WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Grid: (tokens, groups of HEADS KV heads). Strides in numbers; pools of uint8 take the bits of float8_e4m3fn."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    block = slot // BLOCK_SIZE  # int64, as what it is multiplied to: a pool may have more than 2**31 numbers
    offset = slot % BLOCK_SIZE
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    _store(
        keys,
        key_pool,
        key_scale,
        heads,
        kv_heads,
        token * key_token_stride,
        block * key_pool_block_stride + offset * key_pool_slot_stride,
        key_head_stride,
        key_dimension_stride,
        key_pool_head_stride,
        key_pool_dimension_stride,
        KEY_SIZE,
        KEY_WIDTH,
    )
    _store(
        values,
        value_pool,
        value_scale,
        heads,
        kv_heads,
        token * value_token_stride,
        block * value_pool_block_stride + offset * value_pool_slot_stride,
        value_head_stride,
        value_dimension_stride,
        value_pool_head_stride,
        value_pool_dimension_stride,
        VALUE_SIZE,
        VALUE_WIDTH,
    )


def write_kv(
    keys: torch.Tensor,
    values: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    slots: torch.Tensor,
    *,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
) -> None:
    """As ``reference.write_kv``. One sector is written once where a key's numbers lie side by side in the pool (its
    memory [blocks, kv_heads, block_size, head_size], shown transposed); any strides are right."""
    tokens, kv_heads, key_size = keys.shape
    if tokens == 0:
        return
    if key_pool.dtype == torch.float8_e4m3fn:
        key_pool, value_pool = key_pool.view(torch.uint8), value_pool.view(torch.uint8)
    key_width, value_width = power_of_two(key_size), power_of_two(values.shape[2])
    heads = min(power_of_two(kv_heads), max(1, TILE // max(key_width, value_width)))
    write_kv_kernel[(tokens, triton.cdiv(kv_heads, heads))](
        keys,
        values,
        key_pool,
        value_pool,
        slots,
        key_scale,
        value_scale,
        kv_heads,
        *keys.stride(),
        *values.stride(),
        *key_pool.stride(),
        *value_pool.stride(),
        BLOCK_SIZE=value_pool.shape[2],
        KEY_SIZE=key_size,
        VALUE_SIZE=values.shape[2],
        KEY_WIDTH=key_width,
        VALUE_WIDTH=value_width,
        HEADS=heads,
    )
