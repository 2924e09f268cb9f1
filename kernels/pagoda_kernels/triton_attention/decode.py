"""Decode: few query tokens a sequence, many tokens of KV, whose one reading is all the time that it takes.

One program per sequence, KV head and part of the context (flash-decoding): a program reads its KV once for all query
heads and query tokens that share it. Where contexts are split, every part leaves its attention and the logarithm of
its sum of weights, and ``reduction`` joins them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda_kernels.triton_attention.attention_rows import attend_rows, divided, first_visible, store_rows
from pagoda_kernels.triton_attention.tiling import Budget

BUDGET = Budget(registers=176, shared_bytes=88 * 1024)
"""One program at least on any GPU, of 64 rows and eight warps. Of the usual ones, of 16 rows and four warps, three run
at once."""


@triton.jit(do_not_specialize=["split_tokens", "limit", "table_stride"])
def decode_kernel(
    output,
    partial,
    partial_logarithms,
    query,
    key_pool,
    value_pool,
    query_starts,
    context_lengths,
    block_tables,
    sinks,
    alibi_slopes,
    key_scale,
    value_scale,
    scaling,
    softcap,
    window,
    split_tokens,
    limit,
    kv_heads,
    query_token_stride,
    query_head_stride,
    query_dimension_stride,
    key_block_stride,
    key_head_stride,
    key_dimension_stride,
    key_slot_stride,
    value_block_stride,
    value_head_stride,
    value_slot_stride,
    value_dimension_stride,
    table_stride,
    GROUP: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Grid: (KV heads x tiles of rows, parts, sequences). Sequences of more than ``limit`` query tokens are left out.

    split_tokens: tokens of a part, from the first that the sequence sees on. partial: float32
    [S, Hkv, parts, limit x GROUP, Dv], partial_logarithms: float32 [S, Hkv, parts, limit x GROUP] (base 2); None, and
    ``output`` [T, Hq, Dv] is written, where there is one part.
    """
    kv_head = tl.program_id(0) % kv_heads
    first_row = tl.program_id(0) // kv_heads * ROWS
    split = tl.program_id(1)
    sequence = tl.program_id(2)
    start = tl.load(query_starts + sequence)
    length = tl.load(query_starts + sequence + 1) - start
    if (length > limit) | (first_row >= length * GROUP):
        return
    context = tl.load(context_lengths + sequence)
    first = first_visible(context, length, window) + split * split_tokens
    if (first >= context) & (split > 0):
        return
    weighted, largest, weight_sum = attend_rows(
        first_row, sequence, kv_head, start, length, context, first, first + split_tokens, split,
        query, key_pool, value_pool, block_tables, sinks, alibi_slopes, key_scale, scaling, softcap, window,
        query_token_stride, query_head_stride, query_dimension_stride,
        key_block_stride, key_head_stride, key_dimension_stride, key_slot_stride,
        value_block_stride, value_head_stride, value_slot_stride, value_dimension_stride,
        table_stride, GROUP, HEAD_SIZE, VALUE_SIZE, BLOCK_SIZE, HEAD_WIDTH, VALUE_WIDTH, ROWS, TOKENS,
    )  # fmt: skip
    result = divided(weighted, weight_sum, value_scale, kv_head)
    if partial is None:
        store_rows(output, result, first_row, kv_head, kv_heads, start, length, GROUP, VALUE_SIZE)
    else:
        rows = first_row + tl.arange(0, ROWS)
        own = rows < length * GROUP
        part = (sequence.to(tl.int64) * kv_heads + kv_head) * tl.num_programs(1) + split
        partial_rows = part * (limit * GROUP) + rows
        dimensions = tl.arange(0, VALUE_WIDTH)
        tl.store(
            partial + partial_rows[:, None] * VALUE_SIZE + dimensions[None, :],
            result,
            mask=own[:, None] & (dimensions < VALUE_SIZE)[None, :],
        )
        tl.store(partial_logarithms + partial_rows, largest + tl.log2(weight_sum), mask=own)
