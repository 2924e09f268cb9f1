"""Sampling on a GPU without sorting: a row's few probable tokens are collected, and thresholds sought among them.

Passes over a row of logits: 1 where the temperature is 0; up to 2 without top-k, top-p and min-p; 2 with min-p alone;
3 with top-k or top-p. What follows goes through the candidates. Only where a distribution is so flat that more than
CAPACITY tokens are candidates, each of a search's up to nine steps is a pass, too.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda_kernels.triton_attention.tiling import Budget, power_of_two
from pagoda_kernels.triton_layers.sampling_search import (
    above,
    collect,
    draw_all,
    draw_kept,
    find_cut,
    find_greatest,
    least_key,
    logit_of,
    search,
)

BUDGET = Budget(registers=128, shared_bytes=32768)

WARPS = 16
TILE = 4096
"""Logits that a program takes at a time: at 16 warps, enough loads on their way to hide what each takes."""

CAPACITY = 8192
"""Candidates that are collected."""


@triton.jit
def sampling_kernel(
    logits,
    uniforms,
    temperatures,
    top_k,
    top_p,
    min_p,
    candidates,
    tokens,
    size,
    row_stride,
    CAPACITY: tl.constexpr,
    TILE: tl.constexpr,
    FEW: tl.constexpr,
):
    """Grid: (rows,). FEW: of the candidates, taken at a time."""
    index = tl.program_id(0).to(tl.int64)
    row = logits + index * row_stride
    temperature = tl.load(temperatures + index)
    # Below 1e-30 weights are 0 or 1 already, and the quotient stays finite.
    scale = 1.4426950408889634 / tl.where(temperature == 0.0, 1.0, tl.maximum(temperature, 1e-30))
    top, first, mass, usable = find_greatest(row, size, scale, TILE)
    if temperature == 0.0 or not usable:
        tl.store(tokens + index, tl.where(usable, first, -1).to(tl.int64))
        return
    uniform = tl.load(uniforms + index)
    kept_count = size
    if top_k is not None:
        kept_count = tl.load(top_k + index)
    kept_mass = 1.0
    if top_p is not None:
        kept_mass = tl.load(top_p + index)
    least_weight = 0.0
    if min_p is not None:
        least_weight = tl.load(min_p + index)
    by_count = (kept_count > 0) & (kept_count < size)
    by_mass = kept_mass < 1.0
    if not (by_count | by_mass | (least_weight > 0.0)):
        tl.store(tokens + index, draw_all(row, size, top, scale, mass, uniform, TILE).to(tl.int64))
        return
    cut = float("-inf")
    if by_count | by_mass:
        goal = tl.where(by_count, kept_count.to(tl.float32), kept_mass * mass)
        cut = find_cut(row, size, top, scale, goal, by_count, TILE)
    # The mass of the first k tokens counts those that min-p drops.
    wanted = tl.where(by_count & by_mass, 0.0, least_weight)
    own = candidates + index * CAPACITY
    count = collect(row, size, top, scale, cut, wanted, own, CAPACITY, TILE)
    held = tl.where(count <= CAPACITY, count, 0)
    count = tl.where(count <= CAPACITY, count, size)
    key = least_key(row, own, held, count, size, FEW)
    equals = size
    if by_count:
        key = search(row, own, held, count, size, top, scale, key, kept_count.to(tl.float32), True, FEW)
        number, mass = above(row, own, held, count, size, top, scale, key, FEW)
        equals = kept_count - number
        mass += equals * tl.exp2((logit_of(key) - top) * scale)
    if by_mass:
        goal = kept_mass * mass
        higher = search(row, own, held, count, size, top, scale, key, goal, False, FEW)
        _, before = above(row, own, held, count, size, top, scale, higher, FEW)
        weight = tl.exp2((logit_of(higher) - top) * scale)
        left = goal - before
        enough = tl.where(left < size * weight, tl.ceil(left / tl.maximum(weight, 1e-38)), size).to(tl.int32)
        equals = tl.maximum(tl.where(higher > key, enough, tl.minimum(equals, enough)), 1)
        key = higher
    token = draw_kept(row, own, held, count, size, top, scale, key, equals, least_weight, uniform, FEW)
    tl.store(tokens + index, token.to(tl.int64))


def sample(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    temperatures: torch.Tensor,
    *,
    top_k: torch.Tensor | None = None,
    top_p: torch.Tensor | None = None,
    min_p: torch.Tensor | None = None,
) -> torch.Tensor:
    """As ``layer_reference.sample``, in float32; all on the logits' device. Nothing waits for the device.

    Parameters that are None cost nothing; rows that do not use them cost what they cost alone.
    """
    rows, size = logits.shape
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    filtered = top_k is not None or top_p is not None or min_p is not None
    candidates = torch.empty(rows if filtered else 0, CAPACITY, dtype=torch.int32, device=logits.device)
    if rows:
        sampling_kernel[(rows,)](
            logits,
            uniforms,
            temperatures,
            top_k,
            top_p,
            min_p,
            candidates,
            tokens,
            size,
            logits.stride(0),
            CAPACITY=CAPACITY,
            TILE=min(TILE, max(1024, power_of_two(size))),
            FEW=1024,
            num_warps=WARPS,
        )
    return tokens
