"""The pools of all layers as a kernel sees them: addresses and bytes, so that one launch moves blocks of them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch


@dataclass(frozen=True, slots=True)
class PoolTable:
    """P pools of equally many blocks.

    addresses, sizes, starts: int64 [P] on the pools' device, of each pool: its first byte, bytes of a block, and where
    its part of a payload begins. largest: bytes of the largest block. payload: bytes of a block in all pools together.
    aligned: every address and size is a multiple of 16 bytes.
    """

    addresses: torch.Tensor
    sizes: torch.Tensor
    starts: torch.Tensor
    largest: int
    payload: int
    aligned: bool


def pool_table(pools: Sequence[torch.Tensor]) -> PoolTable:
    """Built once for the same pools. Raises ValueError for a pool whose blocks do not lie one behind the other."""
    sizes = tuple(pool[0].nbytes for pool in pools)
    for pool, size in zip(pools, sizes, strict=True):
        if pool.stride(0) * pool.element_size() != size:
            raise ValueError(f"a pool's blocks of {size} bytes are {pool.stride(0) * pool.element_size()} bytes apart")
    return _table(tuple(pool.data_ptr() for pool in pools), sizes, pools[0].device)


@lru_cache(maxsize=16)
def _table(addresses: tuple[int, ...], sizes: tuple[int, ...], device: torch.device) -> PoolTable:
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    columns = torch.tensor([addresses, sizes, starts], dtype=torch.int64).to(device)
    aligned = all(number % 16 == 0 for number in (*addresses, *sizes))
    return PoolTable(columns[0], columns[1], columns[2], max(sizes), sum(sizes), aligned)
