"""Paged attention on a GPU: which kernels a step is launched as, from what the host knows of it.

Decodes and prefill chunks of one step are two launches. A decode is bound by memory: it wants 16 rows, and its context
split until every processor reads. A chunk is bound by arithmetic: it wants 64 or 128 rows, which hold registers that
would halve the decodes running at once, and no split, whose partial results are as large as its queries. Each kernel
leaves the other's sequences out by their number of query tokens, which it reads on the device: nothing is sorted and
nothing waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from pagoda_kernels.batch import PagedBatch
from pagoda_kernels.triton_attention.decode import decode_kernel
from pagoda_kernels.triton_attention.prefill import prefill_kernel
from pagoda_kernels.triton_attention.reduction import reduction_kernel
from pagoda_kernels.triton_attention.tiling import (
    Tiling,
    decode_tiling,
    power_of_two,
    prefill_tiling,
    tokens_of_a_part,
    width,
)

DECODE_TOKENS = 8
"""Query tokens up to which a step of nothing longer is decoded: the drafts of speculative decoding."""

FLOAT8_ARCHITECTURE = 89
"""Since which GPUs convert float8_e4m3fn."""

DECODE_ROWS = 16
"""Rows that a decode has in any case: beside longer chunks, sequences whose rows fit in are decoded."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a step is cut, for tests and measurements; what is None is chosen by shape.

    limit: sequences of up to so many query tokens are decoded. part: tokens of a part of a context.
    """

    limit: int | None = None
    part: int | None = None
    decode: Tiling | None = None
    prefill: Tiling | None = None


def paged_attention(
    query: torch.Tensor,
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    batch: PagedBatch,
    *,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
    cut: Cut = Cut(),
) -> torch.Tensor:
    """As ``reference.paged_attention``. Nothing waits for the device if the batch says its ``longest``.

    Fast where a key's numbers lie side by side (the pool's memory [blocks, kv_heads, block_size, head_size], shown
    transposed), right for any strides.
    """
    tokens, query_heads, head_size = query.shape
    kv_heads, block_size, value_size = value_pool.shape[1:]
    group, sequences = query_heads // kv_heads, batch.context_lengths.shape[0]
    output = query.new_empty(tokens, query_heads, value_size)
    longest_query, longest_context = batch.longest()
    if sliding_window is not None:
        longest_context = min(longest_context, sliding_window + longest_query - 1)
    processors, architecture = _device(query.device)
    if key_pool.dtype == torch.float8_e4m3fn and architecture < FLOAT8_ARCHITECTURE:
        key_pool, value_pool = key_pool.view(torch.uint8), value_pool.view(torch.uint8)
    limit = cut.limit
    if limit is None:
        limit = longest_query if longest_query <= DECODE_TOKENS else max(1, DECODE_ROWS // group)
    shape = (width(head_size) + width(value_size), key_pool.element_size(), query.element_size(), architecture)
    common: dict[str, Any] = {
        "query": query,
        "key_pool": key_pool,
        "value_pool": value_pool,
        "query_starts": batch.query_starts,
        "context_lengths": batch.context_lengths,
        "block_tables": batch.block_tables,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "key_scale": key_scale,
        "value_scale": value_scale,
        "scaling": scaling,
        "softcap": softcap,
        "window": sliding_window,
        "kv_heads": kv_heads,
        "query_token_stride": query.stride(0),
        "query_head_stride": query.stride(1),
        "query_dimension_stride": query.stride(2),
        "key_block_stride": key_pool.stride(0),
        "key_head_stride": key_pool.stride(1),
        "key_dimension_stride": key_pool.stride(2),
        "key_slot_stride": key_pool.stride(3),
        "value_block_stride": value_pool.stride(0),
        "value_head_stride": value_pool.stride(1),
        "value_slot_stride": value_pool.stride(2),
        "value_dimension_stride": value_pool.stride(3),
        "table_stride": batch.block_tables.stride(0),
        "GROUP": group,
        "HEAD_SIZE": head_size,
        "VALUE_SIZE": value_size,
        "BLOCK_SIZE": block_size,
        "HEAD_WIDTH": width(head_size),
        "VALUE_WIDTH": width(value_size),
    }
    if limit > 0:
        rows = limit * group
        tiling = cut.decode or decode_tiling(rows, *shape)
        across = kv_heads * -(-rows // tiling.rows)
        part = cut.part or tokens_of_a_part(across * sequences, longest_context, processors)
        _decode(output, common, tiling, across, sequences, -(-longest_context // part), part, limit)
    if longest_query > limit:
        tiling = cut.prefill or prefill_tiling(longest_query * group, *shape)
        prefill_kernel[(tokens * group // tiling.rows + sequences, kv_heads)](
            output=output,
            above=limit,
            sequences=sequences,
            ROWS=tiling.rows,
            TOKENS=tiling.tokens,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
            **common,
        )
    return output


def _decode(
    output: torch.Tensor,
    common: dict[str, Any],
    tiling: Tiling,
    across: int,
    sequences: int,
    splits: int,
    part: int,
    limit: int,
) -> None:
    """Launch the decode in ``splits`` parts, and the pass that joins them where there are several."""
    kv_heads, group, value_size = common["kv_heads"], common["GROUP"], common["VALUE_SIZE"]
    partial = logarithms = None
    if splits > 1:
        logarithms = output.new_empty((sequences, kv_heads, splits, limit * group), dtype=torch.float32)
        partial = output.new_empty((*logarithms.shape, value_size), dtype=torch.float32)
    decode_kernel[(across, splits, sequences)](
        output=output,
        partial=partial,
        partial_logarithms=logarithms,
        split_tokens=part,
        limit=limit,
        ROWS=tiling.rows,
        TOKENS=tiling.tokens,
        num_warps=tiling.warps,
        num_stages=tiling.stages,
        **common,
    )
    if splits > 1:
        reduction_kernel[(limit * group, kv_heads, sequences)](
            output=output,
            partial=partial,
            partial_logarithms=logarithms,
            query_starts=common["query_starts"],
            context_lengths=common["context_lengths"],
            window=common["window"],
            split_tokens=part,
            limit=limit,
            splits=splits,
            kv_heads=kv_heads,
            GROUP=group,
            VALUE_SIZE=value_size,
            VALUE_WIDTH=common["VALUE_WIDTH"],
            PARTS=min(8, power_of_two(splits)),
            num_warps=2,
        )


@lru_cache
def _device(device: torch.device) -> tuple[int, int]:
    """Its processors, and its architecture: 80 for sm_80. Interpreted on a CPU: an A100's."""
    if device.type != "cuda":
        return 108, 80
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, 10 * properties.major + properties.minor
