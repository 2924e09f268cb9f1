"""Whole blocks are copied within the pools, and to and from a staging buffer: bytes, whatever the pools' dtype."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import triton
import triton.language as tl

from pagoda_kernels.triton_attention.tiling import Budget
from pagoda_kernels.triton_layers.pool_table import PoolTable, pool_table

BUDGET = Budget(registers=40, shared_bytes=0)

TILE_BYTES = 8192
"""Of a block that a program moves at a time."""


@triton.jit
def _pointer(address, ALIGNED: tl.constexpr):
    """``address`` (int64) as a pointer to the words that blocks are moved in."""
    if ALIGNED:
        return tl.multiple_of(address.to(tl.pointer_type(tl.int64)), 16)
    else:
        return address.to(tl.pointer_type(tl.uint8))


@triton.jit(do_not_specialize=["count"])
def copy_blocks_kernel(addresses, sizes, pairs, count, ALIGNED: tl.constexpr, TILE: tl.constexpr):
    """Grid: (tiles of a block, pools). A program copies its tile of every pair [count, 2], in order.

    No two programs touch the same byte, and each of a program's threads reads and writes the same bytes of every
    block: what an earlier pair has written is what a later one reads.
    """
    pool = tl.program_id(1)
    WORD: tl.constexpr = 8 if ALIGNED else 1
    address = tl.load(addresses + pool)
    size = tl.load(sizes + pool)
    words = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = words < tl.multiple_of(size // WORD, 16 // WORD if ALIGNED else 1)
    for index in range(count):
        source = tl.load(pairs + 2 * index)  # int64, as its product with the size: a pool has more than 2**31 bytes
        target = tl.load(pairs + 2 * index + 1)
        moved = tl.load(_pointer(address + source * size, ALIGNED) + words, mask=inside)
        tl.store(_pointer(address + target * size, ALIGNED) + words, moved, mask=inside)


@triton.jit
def stage_blocks_kernel(
    addresses, sizes, starts, blocks, staged, payload, TO_POOLS: tl.constexpr, ALIGNED: tl.constexpr, TILE: tl.constexpr
):
    """Grid: (blocks, pools, tiles of a block). Between the pools and ``staged``, uint8 [blocks, payload]."""
    index = tl.program_id(0).to(tl.int64)
    pool = tl.program_id(1)
    WORD: tl.constexpr = 8 if ALIGNED else 1
    size = tl.load(sizes + pool)
    words = tl.program_id(2) * TILE + tl.arange(0, TILE)
    inside = words < tl.multiple_of(size // WORD, 16 // WORD if ALIGNED else 1)
    pooled = _pointer(tl.load(addresses + pool) + tl.load(blocks + index) * size, ALIGNED) + words
    place = staged.to(tl.int64) + index * payload + tl.load(starts + pool)
    packed = _pointer(place, ALIGNED) + words
    if TO_POOLS:
        tl.store(pooled, tl.load(packed, mask=inside), mask=inside)
    else:
        tl.store(packed, tl.load(pooled, mask=inside), mask=inside)


def copy_blocks(pools: Iterable[torch.Tensor], pairs: Sequence[tuple[int, int]] | torch.Tensor) -> None:
    """As ``reference.copy_blocks``, in one launch. pairs: also int64 [N, 2] on the pools' device."""
    pools = list(pools)
    device = pools[0].device
    if not isinstance(pairs, torch.Tensor):
        host = torch.tensor(list(pairs), dtype=torch.int64, pin_memory=device.type == "cuda").view(-1, 2)
        pairs = host.to(device, non_blocking=True)
    if len(pairs) == 0:
        return
    table = pool_table(pools)
    tile = TILE_BYTES // (8 if table.aligned else 1)
    copy_blocks_kernel[(triton.cdiv(table.largest, TILE_BYTES), len(pools))](
        table.addresses, table.sizes, pairs.contiguous(), len(pairs), ALIGNED=table.aligned, TILE=tile
    )


def stage_blocks(table: PoolTable, blocks: torch.Tensor, staged: torch.Tensor, *, to_pools: bool) -> None:
    """Copy ``blocks`` (int64 [N], all different) of all pools to the payloads ``staged`` (uint8 [N, payload],
    contiguous), or back; in one launch."""
    if len(blocks) == 0:
        return
    aligned = table.aligned and staged.data_ptr() % 16 == 0
    tile = TILE_BYTES // (8 if aligned else 1)
    stage_blocks_kernel[(len(blocks), len(table.sizes), triton.cdiv(table.largest, TILE_BYTES))](
        table.addresses,
        table.sizes,
        table.starts,
        blocks,
        staged,
        table.payload,
        TO_POOLS=to_pools,
        ALIGNED=aligned,
        TILE=tile,
    )
