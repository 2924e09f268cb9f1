"""The second pass of a split decode: the parts of a context become one attention."""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda_kernels.triton_attention.attention_rows import first_visible
from pagoda_kernels.triton_attention.tiling import Budget

BUDGET = Budget(registers=64, shared_bytes=8 * 1024)
"""As many programs as a processor takes."""


@triton.jit(do_not_specialize=["split_tokens", "limit", "splits"])
def reduction_kernel(
    output,
    partial,
    partial_logarithms,
    query_starts,
    context_lengths,
    window,
    split_tokens,
    limit,
    splits,
    kv_heads,
    GROUP: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Grid: (limit x GROUP rows, KV heads, sequences); one row a program, PARTS parts at a time.

    See ``decode_kernel`` for the layout. Only the parts that a sequence's context has are read.
    """
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = tl.program_id(2)
    start = tl.load(query_starts + sequence)
    length = tl.load(query_starts + sequence + 1) - start
    if (length > limit) | (row >= length * GROUP):
        return
    context = tl.load(context_lengths + sequence)
    used = tl.maximum(tl.cdiv(context - first_visible(context, length, window), split_tokens), 1)
    rows_before = (sequence.to(tl.int64) * kv_heads + kv_head) * splits * (limit * GROUP) + row
    dimensions = tl.arange(0, VALUE_WIDTH)
    inside = dimensions < VALUE_SIZE
    weighted = tl.zeros([VALUE_WIDTH], dtype=tl.float32)
    weight_sum = 0.0
    largest = float("-inf")
    for begin in range(0, used, PARTS):
        parts = begin + tl.arange(0, PARTS)
        rows = rows_before + parts * (limit * GROUP)
        logarithms = tl.load(partial_logarithms + rows, mask=parts < used, other=float("-inf"))
        larger = tl.maximum(largest, tl.max(logarithms, axis=0))
        base = tl.where(larger == float("-inf"), 0.0, larger)
        weights = tl.exp2(logarithms - base)
        kept = tl.exp2(largest - base)
        attention = tl.load(
            partial + rows[:, None] * VALUE_SIZE + dimensions[None, :],
            mask=(parts < used)[:, None] & inside[None, :],
            other=0.0,
        )
        weighted = weighted * kept + tl.sum(attention * weights[:, None], axis=0)
        weight_sum = weight_sum * kept + tl.sum(weights, axis=0)
        largest = larger
    result = weighted / tl.where(weight_sum == 0, 1.0, weight_sum)
    query_row = (start + row // GROUP).to(tl.int64) * (kv_heads * GROUP) + kv_head * GROUP + row % GROUP
    tl.store(output + query_row * VALUE_SIZE + dimensions, result.to(output.dtype.element_ty), mask=inside)
