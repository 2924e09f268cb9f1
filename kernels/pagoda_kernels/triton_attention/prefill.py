"""Prefill: chunks of many query tokens behind whatever of their sequence is in the pool already.

One program per KV head and tile of rows, over the stream of all sequences: a tile is ROWS rows of one sequence. The
device finds a tile's sequence itself, so that a launch needs the number of tokens and of sequences and nothing else.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda_kernels.triton_attention.attention_rows import attend_rows, divided, store_rows
from pagoda_kernels.triton_attention.tiling import Budget

BUDGET = Budget(registers=255, shared_bytes=112 * 1024)
"""One program of eight warps on a processor, or two of four: all registers that a thread can have."""


@triton.jit(do_not_specialize=["above", "sequences", "table_stride"])
def prefill_kernel(
    output,
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
    above,
    sequences,
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
    """Grid: (T x GROUP // ROWS + S tiles, KV heads). Sequences of ``above`` query tokens or fewer are left out.

    Sequence s has the tiles from ``query_starts[s] x GROUP // ROWS + s`` on, up to the next one's: at least as many as
    it needs.
    """
    # Later tiles see more: they begin first, so that the last to end are short.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = tile * 0
    beyond = sequence + sequences
    while beyond - sequence > 1:
        middle = (sequence + beyond) // 2
        begins = tl.load(query_starts + middle) * GROUP // ROWS + middle
        sequence = tl.where(begins <= tile, middle, sequence)
        beyond = tl.where(begins <= tile, beyond, middle)
    start = tl.load(query_starts + sequence)
    length = tl.load(query_starts + sequence + 1) - start
    first_row = (tile - (start * GROUP // ROWS + sequence)) * ROWS
    if (length <= above) | (first_row >= length * GROUP):
        return
    context = tl.load(context_lengths + sequence)
    weighted, _largest, weight_sum = attend_rows(
        first_row, sequence, kv_head, start, length, context, 0, context, 0,
        query, key_pool, value_pool, block_tables, sinks, alibi_slopes, key_scale, scaling, softcap, window,
        query_token_stride, query_head_stride, query_dimension_stride,
        key_block_stride, key_head_stride, key_dimension_stride, key_slot_stride,
        value_block_stride, value_head_stride, value_slot_stride, value_dimension_stride,
        table_stride, GROUP, HEAD_SIZE, VALUE_SIZE, BLOCK_SIZE, HEAD_WIDTH, VALUE_WIDTH, ROWS, TOKENS,
    )  # fmt: skip
    result = divided(weighted, weight_sum, value_scale, kv_head)
    store_rows(output, result, first_row, kv_head, kv_heads, start, length, GROUP, VALUE_SIZE)
