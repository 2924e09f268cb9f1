"""Paged attention and block copies in plain torch: what every other implementation has to equal, and the way without a
compiler.

PagedAttention (arXiv 2309.06180, section 4.1). Layouts of a layer's pools: keys [blocks, kv_heads, head_size,
block_size] (the slots of a block side by side, so that scores of a block are one vector), values [blocks, kv_heads,
block_size, value_size].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch

from pagoda_kernels.batch import PagedBatch

FLOAT8_GREATEST = 448.0
"""The greatest number of float8_e4m3fn; what a pool of them stores is cut to it."""


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
    """Store keys [T, Hkv, D] and values [T, Hkv, Dv] of a step's tokens in their ``slots`` [T]; none where negative.

    key_scale, value_scale: float32 [Hkv], what the stored numbers are to be multiplied with: they are divided by it.
    Pools of float8_e4m3fn store what is too great for them as their greatest number.
    """
    block_size = value_pool.shape[2]
    if bool((slots < 0).any()):
        kept = slots >= 0
        keys, values, slots = keys[kept], values[kept], slots[kept]
    blocks, offsets = slots // block_size, slots % block_size
    key_pool[blocks, :, :, offsets] = _stored(keys, key_scale, key_pool.dtype)
    value_pool[blocks, :, offsets] = _stored(values, value_scale, value_pool.dtype)


def _stored(numbers: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """numbers [T, Hkv, D] as a pool of ``dtype`` keeps them."""
    if scale is not None:
        numbers = numbers.float() / scale[:, None]
    if dtype == torch.float8_e4m3fn:
        numbers = numbers.float().clamp(-FLOAT8_GREATEST, FLOAT8_GREATEST)
    return numbers.to(dtype)


def copy_blocks(pools: Iterable[torch.Tensor], pairs: Sequence[tuple[int, int]]) -> None:
    """Copy whole blocks (source, destination) in every pool, in order."""
    for pool in pools:
        for source, destination in pairs:
            pool[destination].copy_(pool[source])


def gather_blocks(pools: Sequence[torch.Tensor], blocks: Sequence[int]) -> list[bytearray]:
    """Copies of whole blocks: per block one payload, its bytes in every pool one after the other. Bit for bit.

    The pools are contiguous. On a GPU the copies wait for what the current stream has queued, and have arrived when
    this returns. Raises IndexError for a block that does not exist.
    """
    check_blocks(pools, blocks)
    index = torch.tensor(blocks, dtype=torch.long, device=pools[0].device)
    parts = [_rows(pool).index_select(0, index) for pool in pools]
    return [bytearray(row.numpy()) for row in torch.cat(parts, dim=1).cpu()]


def scatter_blocks(
    pools: Sequence[torch.Tensor], blocks: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]
) -> None:
    """Put payloads of ``gather_blocks`` into ``blocks``, all different. Raises IndexError, or ValueError for a payload
    of another length; nothing is written then."""
    check_blocks(pools, blocks, payloads)
    if not blocks:
        return
    device = pools[0].device
    index = torch.tensor(blocks, dtype=torch.long, device=device)
    rows = [torch.frombuffer(bytearray(payload), dtype=torch.uint8) for payload in payloads]
    staged = torch.stack(rows).to(device)
    start = 0
    for pool in pools:
        into = _rows(pool)
        into.index_copy_(0, index, staged[:, start : start + into.shape[1]])
        start += into.shape[1]


def check_blocks(
    pools: Sequence[torch.Tensor],
    blocks: Sequence[int],
    payloads: Sequence[bytes | bytearray | memoryview] | None = None,
) -> None:
    """Raise IndexError for a block that is not in the pools, ValueError for payloads that are not one per block of the
    right length."""
    total = pools[0].shape[0]
    if blocks and not (min(blocks) >= 0 and max(blocks) < total):
        raise IndexError(f"blocks {min(blocks)} to {max(blocks)} of a pool of {total}")
    if payloads is not None:
        size = sum(pool[0].nbytes for pool in pools)
        lengths = [memoryview(payload).nbytes for payload in payloads]
        if len(lengths) != len(blocks) or any(length != size for length in lengths):
            raise ValueError(f"{len(blocks)} blocks take as many payloads of {size} bytes, not {lengths}")


def _rows(pool: torch.Tensor) -> torch.Tensor:
    """A pool as the bytes of its blocks [blocks, bytes of a block], sharing its memory."""
    return pool.view(torch.uint8).flatten(1)


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
) -> torch.Tensor:
    """Causal attention of ``query`` [T, Hq, D] over the pooled KV of its sequences; the step's own KV is written.

    scaling: of the scores before ``softcap`` (cap * tanh(score / cap)). sliding_window: a token sees itself and the
    ``sliding_window - 1`` tokens before it. sinks: [Hq], one more score per head that takes part in the softmax and
    has no value. alibi_slopes: float32 [Hq], added to the capped scores times how far back a token lies, negative
    (arXiv 2108.12409). key_scale, value_scale: float32 [Hkv], what the pools' numbers (float8_e4m3fn) are multiplied
    with. Computed in float32. Returns [T, Hq, Dv] in the query's dtype.
    """
    output = query.new_empty(query.shape[0], query.shape[1], value_pool.shape[3])
    starts = batch.query_starts.tolist()
    of_length = defaultdict(list)
    for sequence, (start, end) in enumerate(pairwise(starts)):
        of_length[end - start].append(sequence)
    for length, sequences in of_length.items():  # decodes are one group, every chunk usually its own
        rows = torch.tensor([range(starts[s], starts[s] + length) for s in sequences], device=query.device)
        keys, values = _gather_kv(key_pool, value_pool, batch, sequences, key_scale, value_scale)
        output[rows] = _attend(
            query[rows].float(),
            keys,
            values,
            batch.context_lengths[sequences].long(),
            scaling,
            sliding_window,
            softcap,
            sinks,
            alibi_slopes,
        ).to(output.dtype)
    return output


def _gather_kv(
    key_pool: torch.Tensor,
    value_pool: torch.Tensor,
    batch: PagedBatch,
    sequences: Sequence[int],
    key_scale: torch.Tensor | None,
    value_scale: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys [n, Hkv, D, N] and values [n, Hkv, N, Dv] of n sequences, float32; N covers their longest context."""
    kv_heads, block_size, value_size = value_pool.shape[1:]
    contexts = batch.context_lengths[sequences].long()
    tables = batch.block_tables[sequences].long()[:, : (int(contexts.max()) + block_size - 1) // block_size]
    # Behind a context of its own, a sequence's table may name anything.
    needed = torch.arange(tables.shape[1], device=tables.device) * block_size < contexts[:, None]
    tables = tables.masked_fill(~needed, 0)
    keys = key_pool[tables].permute(0, 2, 3, 1, 4).reshape(len(sequences), kv_heads, key_pool.shape[2], -1).float()
    values = value_pool[tables].transpose(1, 2).reshape(len(sequences), kv_heads, -1, value_size).float()
    if key_scale is not None:
        keys = keys * key_scale.float()[:, None, None]
    if value_scale is not None:
        values = values * value_scale.float()[:, None, None]
    return keys, values


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    contexts: torch.Tensor,
    scaling: float,
    sliding_window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
    alibi_slopes: torch.Tensor | None,
) -> torch.Tensor:
    """Attention of n sequences with equally many query tokens: query [n, t, Hq, D] -> [n, t, Hq, Dv]."""
    count, length, query_heads, head_size = query.shape
    kv_heads, value_size = values.shape[1], values.shape[3]
    group = query_heads // kv_heads
    grouped = query.view(count, length, kv_heads, group, head_size).permute(0, 2, 3, 1, 4)
    scores = grouped.reshape(count, kv_heads, group * length, head_size) @ keys * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.view(count, kv_heads, group, length, -1)
    position = contexts[:, None] - length + torch.arange(length, device=query.device)  # [n, t], of the query tokens
    slot = torch.arange(keys.shape[-1], device=query.device)
    if alibi_slopes is not None:
        slopes = alibi_slopes.float().view(1, kv_heads, group, 1, 1)
        scores = scores + slopes * (slot - position[..., None])[:, None, None]
    # What lies behind a context is another's, and may not even be numbers: weight 0 alone would not keep it out.
    values = values.masked_fill((slot >= contexts[:, None])[:, None, :, None], 0)
    visible = slot <= position[..., None]
    if sliding_window is not None:
        visible &= slot > position[..., None] - sliding_window
    scores = scores.masked_fill(~visible[:, None, None], -torch.inf)
    if sinks is not None:
        sink = sinks.float().view(1, kv_heads, group, 1, 1).expand(count, -1, -1, length, 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores.softmax(dim=-1)
    attended = weights.flatten(2, 3) @ values
    return attended.view(count, kv_heads, group, length, value_size).permute(0, 3, 1, 2, 4).flatten(2, 3)
