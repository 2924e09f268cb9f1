"""Rows of a sequence's attention: which they are, what they see, and where their result goes.

A row is a (query token, query head) pair of one KV head, counted token by token: all query heads that share a KV head
(grouped-query attention) stand in one tile and use what is loaded once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pagoda_kernels.triton_attention.attention_tile import LOG2_E, attend


@triton.jit
def first_visible(context, length, window):
    """The first token of a context that the first of its ``length`` query tokens sees."""
    if window is None:
        return 0
    else:
        return tl.maximum(context - length - window + 1, 0)


@triton.jit
def attend_rows(
    first_row,
    sequence,
    kv_head,
    start,
    length,
    context,
    first,
    last,
    part,
    query,
    key_pool,
    value_pool,
    block_tables,
    sinks,
    alibi_slopes,
    key_scale,
    scaling,
    softcap,
    window,
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
    """ROWS rows from ``first_row`` on of a sequence attend to what they see of the tokens ``first`` to before ``last``.

    start: the sequence's first row of ``query``; it has ``length`` query tokens at the end of ``context`` tokens.
    part: of the context, in whose first the sinks take part. Returns float32 weighted values
    [ROWS, VALUE_WIDTH] (not divided yet), largest scores [ROWS] (times log2 e) and sums of weights [ROWS].
    """
    rows = first_row + tl.arange(0, ROWS)
    own = rows < length * GROUP
    query_tokens = rows // GROUP
    heads = kv_head * GROUP + rows % GROUP
    positions = context - length + query_tokens
    dimensions = tl.arange(0, HEAD_WIDTH)
    query_offsets = (start + query_tokens).to(tl.int64) * query_token_stride + heads * query_head_stride
    queries = tl.load(
        query + query_offsets[:, None] + (dimensions * query_dimension_stride)[None, :],
        mask=own[:, None] & (dimensions < HEAD_SIZE)[None, :],
        other=0.0,
    )

    slopes = None
    if alibi_slopes is not None:
        slopes = tl.load(alibi_slopes + heads, mask=own, other=0.0).to(tl.float32)
    if key_scale is not None:
        scaling *= tl.load(key_scale + kv_head)
    weighted = tl.zeros([ROWS, VALUE_WIDTH], dtype=tl.float32)
    largest = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    weight_sum = tl.zeros([ROWS], dtype=tl.float32)
    if sinks is not None:  # noqa: SIM102  (decided when compiling, the next when running)
        if part == 0:
            largest = tl.load(sinks + heads, mask=own, other=float("-inf")).to(tl.float32) * LOG2_E
            weight_sum = tl.where(largest == float("-inf"), 0.0, 1.0)

    lowest = context - length + first_row // GROUP
    highest = context - length + (tl.minimum(first_row + ROWS, length * GROUP) - 1) // GROUP
    last = tl.minimum(last, highest + 1)
    if window is not None:
        first = tl.maximum(first, lowest - window + 1)
    whole = tl.maximum(tl.minimum(last, lowest + 1) - first, 0) // TOKENS * TOKENS  # that every row may see
    keys = key_pool + kv_head.to(tl.int64) * key_head_stride
    values = value_pool + kv_head.to(tl.int64) * value_head_stride
    table = block_tables + sequence.to(tl.int64) * table_stride
    weighted, largest, weight_sum = attend(
        weighted, largest, weight_sum, queries, positions, slopes, keys, values, table, first, first + whole,
        scaling, softcap, window, key_block_stride, key_dimension_stride, key_slot_stride,
        value_block_stride, value_slot_stride, value_dimension_stride,
        HEAD_SIZE, VALUE_SIZE, BLOCK_SIZE, TOKENS, EDGE=False,
    )  # fmt: skip
    return attend(
        weighted, largest, weight_sum, queries, positions, slopes, keys, values, table, first + whole, last,
        scaling, softcap, window, key_block_stride, key_dimension_stride, key_slot_stride,
        value_block_stride, value_slot_stride, value_dimension_stride,
        HEAD_SIZE, VALUE_SIZE, BLOCK_SIZE, TOKENS, EDGE=True,
    )  # fmt: skip


@triton.jit
def divided(weighted, weight_sum, value_scale, kv_head):
    """Weighted values [ROWS, VALUE_WIDTH] over the sums of their weights; 0 of a row that saw nothing."""
    result = weighted / tl.where(weight_sum == 0, 1.0, weight_sum)[:, None]
    if value_scale is not None:
        result *= tl.load(value_scale + kv_head)
    return result


@triton.jit
def store_rows(
    output,
    result,
    first_row,
    kv_head,
    kv_heads,
    start,
    length,
    GROUP: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
):
    """Put ``result`` [ROWS, VALUE_WIDTH] of the rows from ``first_row`` on into ``output`` [T, Hq, Dv], contiguous."""
    rows = first_row + tl.arange(0, result.shape[0])
    dimensions = tl.arange(0, result.shape[1])
    query_rows = (start + rows // GROUP).to(tl.int64) * (kv_heads * GROUP) + kv_head * GROUP + rows % GROUP
    tl.store(
        output + query_rows[:, None] * VALUE_SIZE + dimensions[None, :],
        result.to(output.dtype.element_ty),
        mask=(rows < length * GROUP)[:, None] & (dimensions < VALUE_SIZE)[None, :],
    )
