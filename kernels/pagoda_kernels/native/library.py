"""The native kernels as Python functions on CPU tensors of float32 and bfloat16."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pagoda_kernels import reference
from pagoda_kernels.batch import PagedBatch
from pagoda_kernels.native.arguments import (
    FORMATS,
    INT,
    INT64,
    POINTER,
    AttentionArguments,
    TransferArguments,
    function,
)
from pagoda_kernels.native.layers import NativeLayers
from pagoda_kernels.native.sampling import NativeSampling


class NativeLibrary(NativeLayers, NativeSampling):
    """Loaded kernels: layers, sampling, attention and the pool, in torch's number of threads.

    CPU only: tensors are not asked.
    """

    def __init__(self, path: Path) -> None:
        self._library = library = ctypes.CDLL(str(path))
        NativeLayers.__init__(self, library)
        NativeSampling.__init__(self, library)
        self._attention = function(library.pagoda_paged_attention, [INT, POINTER])
        self._write_kv = function(library.pagoda_write_kv, [INT, *[POINTER] * 5, *[INT64] * 9])
        self._gather_blocks = function(library.pagoda_gather_blocks, [POINTER])
        self._scatter_blocks = function(library.pagoda_scatter_blocks, [POINTER])

    @staticmethod
    def supports(dtype: torch.dtype) -> bool:
        return dtype in FORMATS

    def write_kv(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_pool: torch.Tensor,
        value_pool: torch.Tensor,
        slots: torch.Tensor,
        *,
        key_scale: torch.Tensor | None = None,
        value_scale: torch.Tensor | None = None,
    ) -> None:
        """As reference.write_kv, to which it leaves scales, other number formats and pools that are not contiguous."""
        scaled = key_scale is not None or value_scale is not None
        if scaled or not _one_format(keys, values, key_pool, value_pool) or not _contiguous(key_pool, value_pool):
            return reference.write_kv(
                keys, values, key_pool, value_pool, slots, key_scale=key_scale, value_scale=value_scale
            )
        slots = slots.long().contiguous()
        if slots.numel() and int(slots.min()) < 0:
            kept = slots >= 0
            keys, values, slots = keys[kept], values[kept], slots[kept]
        keys = keys if keys.stride(2) == 1 else keys.contiguous()
        values = values if values.stride(2) == 1 else values.contiguous()
        self._write_kv(
            FORMATS[keys.dtype],
            keys.data_ptr(),
            values.data_ptr(),
            key_pool.data_ptr(),
            value_pool.data_ptr(),
            slots.data_ptr(),
            *keys.shape,
            values.shape[2],
            value_pool.shape[2],
            *keys.stride()[:2],
            *values.stride()[:2],
        )
        return None

    def paged_attention(
        self,
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
        """As reference.paged_attention, to which it leaves ALiBi, scales, other number formats and pools that are not
        contiguous."""
        unknown = alibi_slopes is not None or key_scale is not None or value_scale is not None
        if unknown or not _one_format(query, key_pool, value_pool) or not _contiguous(key_pool, value_pool):
            return reference.paged_attention(
                query,
                key_pool,
                value_pool,
                batch,
                scaling=scaling,
                sliding_window=sliding_window,
                softcap=softcap,
                sinks=sinks,
                alibi_slopes=alibi_slopes,
                key_scale=key_scale,
                value_scale=value_scale,
            )
        query = query if query.stride(2) == 1 else query.contiguous()
        sink_floats = None if sinks is None else sinks.float().contiguous()
        tokens, query_heads, head_size = query.shape
        kv_heads, block_size, value_size = value_pool.shape[1:]
        output = query.new_empty(tokens, query_heads, value_size)
        arguments = AttentionArguments(
            query.data_ptr(),
            key_pool.data_ptr(),
            value_pool.data_ptr(),
            output.data_ptr(),
            None if sink_floats is None else sink_floats.data_ptr(),
            batch.query_starts.data_ptr(),
            batch.context_lengths.data_ptr(),
            batch.block_tables.data_ptr(),
            query.stride(0),
            query.stride(1),
            batch.block_tables.stride(0),
            batch.context_lengths.shape[0],
            query_heads,
            kv_heads,
            head_size,
            value_size,
            block_size,
            sliding_window or 0,
            scaling,
            softcap or 0.0,
            torch.get_num_threads(),
        )
        self._attention(FORMATS[query.dtype], ctypes.byref(arguments))
        return output

    @staticmethod
    def copy_blocks(pools: Sequence[torch.Tensor], pairs: Sequence[tuple[int, int]]) -> None:
        """As reference.copy_blocks: torch copies whole blocks at memory speed."""
        reference.copy_blocks(pools, pairs)

    def gather_blocks(self, pools: Sequence[torch.Tensor], blocks: Sequence[int]) -> list[bytearray]:
        """As reference.gather_blocks, in any number format. Other threads run meanwhile."""
        reference.check_blocks(pools, blocks)
        size = sum(pool[0].nbytes for pool in pools)
        payloads = [bytearray(size) for _ in blocks]
        self._transfer(self._gather_blocks, pools, blocks, payloads)
        return payloads

    def scatter_blocks(
        self, pools: Sequence[torch.Tensor], blocks: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """As reference.scatter_blocks, in any number format. Other threads run meanwhile."""
        reference.check_blocks(pools, blocks, payloads)
        self._transfer(self._scatter_blocks, pools, blocks, payloads)

    @staticmethod
    def _transfer(
        function: Any,
        pools: Sequence[torch.Tensor],
        blocks: Sequence[int],
        payloads: Sequence[bytes | bytearray | memoryview],
    ) -> None:
        arrays = [np.frombuffer(payload, dtype=np.uint8) for payload in payloads]  # they keep the payloads in place
        addresses = np.array([array.ctypes.data for array in arrays], dtype=np.uint64)
        pool_addresses = np.array([pool.data_ptr() for pool in pools], dtype=np.uint64)
        pool_bytes = np.array([pool[0].nbytes for pool in pools], dtype=np.int64)
        ids = np.array(blocks, dtype=np.int64)
        arguments = TransferArguments(
            pool_addresses.ctypes.data, pool_bytes.ctypes.data, len(pools), ids.ctypes.data, addresses.ctypes.data,
            len(ids),
        )  # fmt: skip
        function(ctypes.byref(arguments))


def _one_format(*tensors: torch.Tensor) -> bool:
    """Whether all have the same number format, one that the native kernels know."""
    dtypes = {tensor.dtype for tensor in tensors}
    return len(dtypes) == 1 and dtypes <= FORMATS.keys()


def _contiguous(*tensors: torch.Tensor) -> bool:
    return all(tensor.is_contiguous() for tensor in tensors)
