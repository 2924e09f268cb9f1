"""Rotary position embedding (arXiv 2104.09864) of a step's queries and keys, in place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda_kernels.triton_attention.tiling import Budget, power_of_two

BUDGET = Budget(registers=64, shared_bytes=0)

TILE = 1024
"""Pairs of numbers that a program turns at a time."""


@triton.jit
def _turn(
    heads_of,
    offset,
    head_stride,
    dimension_stride,
    count,
    cosine,
    sine,
    INTERLEAVED: tl.constexpr,
    PAIRS: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Turn the first 2 x PAIRS dimensions of ``count`` heads of one token, HEADS at a time."""
    for begin in range(0, count, HEADS):
        heads = begin + tl.arange(0, HEADS)
        base = heads_of + offset + heads[:, None] * head_stride
        if INTERLEAVED:  # read side by side, and parted in registers
            dimensions = tl.arange(0, 2 * WIDTH)
            places = base + dimensions[None, :] * dimension_stride
            here = (heads < count)[:, None] & (dimensions < 2 * PAIRS)[None, :]
            both = tl.load(places, mask=here, other=0.0).to(tl.float32)
            x, y = tl.split(tl.reshape(both, (HEADS, WIDTH, 2)))
            turned = tl.join(x * cosine - y * sine, y * cosine + x * sine)
            tl.store(places, tl.reshape(turned, (HEADS, 2 * WIDTH)).to(heads_of.dtype.element_ty), mask=here)
        else:
            pairs = tl.arange(0, WIDTH)
            left = base + pairs[None, :] * dimension_stride
            right = left + PAIRS * dimension_stride
            here = (heads < count)[:, None] & (pairs < PAIRS)[None, :]
            x = tl.load(left, mask=here, other=0.0).to(tl.float32)
            y = tl.load(right, mask=here, other=0.0).to(tl.float32)
            tl.store(left, (x * cosine - y * sine).to(heads_of.dtype.element_ty), mask=here)
            tl.store(right, (y * cosine + x * sine).to(heads_of.dtype.element_ty), mask=here)


@triton.jit
def rotary_kernel(
    query,
    key,
    cosine,
    sine,
    query_heads,
    kv_heads,
    query_token_stride,
    query_head_stride,
    query_dimension_stride,
    key_token_stride,
    key_head_stride,
    key_dimension_stride,
    angle_token_stride,
    angle_pair_stride,
    INTERLEAVED: tl.constexpr,
    PAIRS: tl.constexpr,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Grid: (tokens,): a token's angles are read once for all its heads."""
    token = tl.program_id(0).to(tl.int64)
    pairs = tl.arange(0, WIDTH)
    inside = pairs < PAIRS
    angles = token * angle_token_stride + pairs * angle_pair_stride
    cosines = tl.load(cosine + angles, mask=inside, other=0.0).to(tl.float32)[None, :]
    sines = tl.load(sine + angles, mask=inside, other=0.0).to(tl.float32)[None, :]
    _turn(
        query,
        token * query_token_stride,
        query_head_stride,
        query_dimension_stride,
        query_heads,
        cosines,
        sines,
        INTERLEAVED,
        PAIRS,
        WIDTH,
        HEADS,
    )
    _turn(
        key,
        token * key_token_stride,
        key_head_stride,
        key_dimension_stride,
        kv_heads,
        cosines,
        sines,
        INTERLEAVED,
        PAIRS,
        WIDTH,
        HEADS,
    )


def rotate(
    query: torch.Tensor, key: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, *, interleaved: bool = False
) -> None:
    """As ``layer_reference.rotate``, any strides; ``cosine`` and ``sine`` have the same ones."""
    tokens, pairs = cosine.shape
    if cosine.stride() != sine.stride():
        cosine, sine = cosine.contiguous(), sine.contiguous()
    if tokens == 0:
        return
    width = power_of_two(pairs)
    rotary_kernel[(tokens,)](
        query,
        key,
        cosine,
        sine,
        query.shape[1],
        key.shape[1],
        *query.stride(),
        *key.stride(),
        *cosine.stride(),
        INTERLEAVED=interleaved,
        PAIRS=pairs,
        WIDTH=width,
        HEADS=min(power_of_two(query.shape[1]), max(1, TILE // width)),
    )
