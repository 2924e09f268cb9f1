"""The loop of every attention kernel: a tile of queries attends to a range of tokens whose KV lies in blocks.

The softmax is computed as the tokens go by (arXiv 1805.02867, 2205.14135), with base 2 in place of e.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def attend(
    weighted,
    largest,
    weight_sum,
    query,
    positions,
    slopes,
    keys,
    values,
    table,
    first,
    last,
    scaling,
    softcap,
    window,
    key_block_stride,
    key_dimension_stride,
    key_slot_stride,
    value_block_stride,
    value_slot_stride,
    value_dimension_stride,
    HEAD_SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    EDGE: tl.constexpr,
):
    """Let ``query`` [ROWS, head width] attend to the tokens from ``first`` to before ``last``, TOKENS at a time.

    weighted: float32 [ROWS, value width], largest, weight_sum: float32 [ROWS]: the state of the softmax, returned
    anew. positions: int32 [ROWS]. slopes: float32 [ROWS] (ALiBi) or None. keys, values: pointers to the KV head's part
    of block 0. table: pointer to the sequence's blocks. EDGE: ``last - first`` may be no multiple of TOKENS, and a row
    may not see a token because it comes later; without it, neither is looked at.
    """
    HEAD_WIDTH: tl.constexpr = query.shape[1]
    VALUE_WIDTH: tl.constexpr = weighted.shape[1]
    key_dimensions = tl.arange(0, HEAD_WIDTH)
    value_dimensions = tl.arange(0, VALUE_WIDTH)
    for start in range(first, last, TOKENS):
        tokens = start + tl.arange(0, TOKENS)
        table_mask = None
        key_mask = None
        value_mask = None
        if HEAD_SIZE < HEAD_WIDTH:
            key_mask = (key_dimensions < HEAD_SIZE)[:, None]
        if VALUE_SIZE < VALUE_WIDTH:
            value_mask = (value_dimensions < VALUE_SIZE)[None, :]
        if EDGE:
            table_mask = tokens < last
            key_mask = table_mask[None, :] if key_mask is None else table_mask[None, :] & key_mask
            value_mask = table_mask[:, None] if value_mask is None else table_mask[:, None] & value_mask

        # A pool may hold more than 2**31 numbers: the offset of a block takes 64 bits.
        blocks = tl.load(table + tokens // BLOCK_SIZE, mask=table_mask).to(tl.int64)
        slots = tokens % BLOCK_SIZE
        key_offsets = blocks * key_block_stride + slots * key_slot_stride
        key_pointers = keys + key_offsets[None, :] + (key_dimensions * key_dimension_stride)[:, None]
        value_offsets = blocks * value_block_stride + slots * value_slot_stride
        value_pointers = values + value_offsets[:, None] + (value_dimensions * value_dimension_stride)[None, :]

        key = load_numbers(key_pointers, key_mask, query.dtype)
        scores = tl.dot(query, key, input_precision="ieee") * scaling
        if softcap is not None:
            # cap * tanh(x), tanh(x) being 1 - 2 / (exp(2x) + 1)
            scores = softcap - 2 * softcap / (tl.exp2(scores * (2 * LOG2_E / softcap)) + 1)
        if slopes is not None:
            scores += slopes[:, None] * (tokens[None, :] - positions[:, None]).to(tl.float32)
        scores *= LOG2_E
        if EDGE:
            visible = (tokens < last)[None, :] & (tokens[None, :] <= positions[:, None])
            scores = tl.where(visible, scores, float("-inf"))
        if window is not None:
            scores = tl.where(tokens[None, :] > positions[:, None] - window, scores, float("-inf"))

        larger = tl.maximum(largest, tl.max(scores, axis=1))
        base = tl.where(larger == float("-inf"), 0.0, larger)  # of a row that has not seen a token yet
        weights = tl.exp2(scores - base[:, None])
        kept = tl.exp2(largest - base)
        weight_sum = weight_sum * kept + tl.sum(weights, axis=1)
        value = load_numbers(value_pointers, value_mask, query.dtype)
        weighted = tl.dot(weights.to(query.dtype), value, weighted * kept[:, None], input_precision="ieee")
        largest = larger
    return weighted, largest, weight_sum


@triton.jit
def load_numbers(pointers, mask, dtype: tl.constexpr):
    """Stored keys or values as ``dtype``, zero where masked.

    uint8 are the bits of float8_e4m3fn, for GPUs that do not know it: sign, four bits of exponent, three of mantissa;
    all ones (but the sign) is the only one that is not a number.
    """
    stored = tl.load(pointers) if mask is None else tl.load(pointers, mask=mask, other=0.0)
    if stored.dtype == tl.uint8:
        bits = stored.to(tl.uint16)
        magnitude = bits & 0x7F
        # Moved to their places in a float16, whose exponent is biased by 15 and not by 7: 2**8 too small.
        numbers = ((magnitude << 7) | ((bits & 0x80) << 8)).to(tl.float16, bitcast=True) * 256.0
        return tl.where(magnitude == 0x7F, float("nan"), numbers).to(dtype)
    else:
        return stored.to(dtype)
