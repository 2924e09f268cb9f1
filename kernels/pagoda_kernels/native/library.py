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

_FORMATS = {torch.float32: 0, torch.bfloat16: 1}
_POINTER, _INT64, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float


class _AttentionArguments(ctypes.Structure):
    """Mirror of AttentionArguments in attention.h."""

    _fields_ = [
        *[(name, _POINTER) for name in ("query", "keys", "values", "output", "sinks")],
        *[(name, _POINTER) for name in ("query_starts", "context_lengths", "block_tables")],
        *[(name, _INT64) for name in ("query_token_stride", "query_head_stride", "table_stride")],
        *[(name, _INT64) for name in ("sequences", "query_heads", "kv_heads", "head_size", "value_size", "block_size")],
        ("window", _INT64),
        ("scaling", _FLOAT),
        ("softcap", _FLOAT),
        ("threads", _INT),
    ]


class _TransferArguments(ctypes.Structure):
    """Mirror of TransferArguments in transfer.h."""

    _fields_ = [
        *[(name, _POINTER) for name in ("pools", "pool_bytes")],
        ("pool_count", _INT64),
        *[(name, _POINTER) for name in ("blocks", "payloads")],
        ("block_count", _INT64),
    ]


class NativeLibrary:
    """Loaded kernels. They use torch's number of threads. Tensors are not checked for where they lie: CPU only."""

    def __init__(self, path: Path) -> None:
        self._library = library = ctypes.CDLL(str(path))
        self._attention = _function(library.pagoda_paged_attention, [_INT, _POINTER])
        self._write_kv = _function(library.pagoda_write_kv, [_INT, *[_POINTER] * 5, *[_INT64] * 9])
        self._pack = _function(library.pagoda_pack, [_INT, _POINTER, _POINTER, _INT64, _INT64, _INT])
        self._linear = _function(library.pagoda_linear, [_INT, _POINTER, _INT64, *[_POINTER] * 3, *[_INT64] * 3, _INT])
        self._rms_norm = _function(library.pagoda_rms_norm, [_INT, *[_POINTER] * 3, _INT64, _INT64, _FLOAT, _INT])
        self._rotate = _function(library.pagoda_rotate, [_INT, *[_POINTER] * 3, *[_INT64] * 5])
        self._silu_multiply = _function(library.pagoda_silu_multiply, [_INT, _POINTER, _POINTER, _INT64, _INT64, _INT])
        self._gather_blocks = _function(library.pagoda_gather_blocks, [_POINTER])
        self._scatter_blocks = _function(library.pagoda_scatter_blocks, [_POINTER])
        library.pagoda_panel.restype = _INT64
        self.panel = int(library.pagoda_panel())
        """Output columns of a packed weight are rounded up to a multiple of this."""

    @staticmethod
    def supports(dtype: torch.dtype) -> bool:
        return dtype in _FORMATS

    def write_kv(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_pool: torch.Tensor,
        value_pool: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        """As reference.write_kv; other number formats are left to it."""
        if key_pool.dtype not in _FORMATS or keys.dtype != key_pool.dtype:
            return reference.write_kv(keys, values, key_pool, value_pool, slots)
        keys = keys if keys.stride(2) == 1 else keys.contiguous()
        values = values if values.stride(2) == 1 else values.contiguous()
        self._write_kv(
            _FORMATS[keys.dtype],
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
    ) -> torch.Tensor:
        """As reference.paged_attention; other number formats are left to it."""
        if query.dtype not in _FORMATS or query.dtype != key_pool.dtype:
            return reference.paged_attention(
                query,
                key_pool,
                value_pool,
                batch,
                scaling=scaling,
                sliding_window=sliding_window,
                softcap=softcap,
                sinks=sinks,
            )
        query = query if query.stride(2) == 1 else query.contiguous()
        sink_floats = None if sinks is None else sinks.float().contiguous()
        tokens, query_heads, head_size = query.shape
        kv_heads, block_size, value_size = value_pool.shape[1:]
        output = query.new_empty(tokens, query_heads, value_size)
        arguments = _AttentionArguments(
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
        self._attention(_FORMATS[query.dtype], ctypes.byref(arguments))
        return output

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """A weight [columns, inner] in the order that ``linear`` reads: [panels, inner, panel]."""
        columns, inner = weight.shape
        weight = weight.detach().contiguous()
        packed = weight.new_empty(-(-columns // self.panel), inner, self.panel)
        self._pack(
            _FORMATS[weight.dtype], weight.data_ptr(), packed.data_ptr(), columns, inner, torch.get_num_threads()
        )
        return packed

    def linear(
        self, inputs: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, columns: int
    ) -> torch.Tensor:
        """inputs [..., inner] times a packed weight of ``columns`` output columns, plus bias [columns]."""
        inner = packed.shape[1]
        rows = inputs.reshape(-1, inner)
        output = inputs.new_empty(*inputs.shape[:-1], columns)
        self._linear(
            _FORMATS[inputs.dtype],
            rows.data_ptr(),
            rows.stride(0),
            packed.data_ptr(),
            None if bias is None else bias.data_ptr(),
            output.data_ptr(),
            rows.shape[0],
            columns,
            inner,
            torch.get_num_threads(),
        )
        return output

    def rms_norm(self, inputs: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Root mean square normalisation of the last dimension, as in llama. ``inputs`` is contiguous."""
        output = torch.empty_like(inputs)
        size = inputs.shape[-1]
        self._rms_norm(
            _FORMATS[inputs.dtype],
            inputs.data_ptr(),
            weight.data_ptr(),
            output.data_ptr(),
            inputs.numel() // size,
            size,
            epsilon,
            torch.get_num_threads(),
        )
        return output

    def rotate(self, heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
        """Rotary embedding in place: heads [T, H, D] (last dimension contiguous), cosine and sine [T, D]."""
        self._rotate(
            _FORMATS[heads.dtype],
            heads.data_ptr(),
            cosine.data_ptr(),
            sine.data_ptr(),
            *heads.shape,
            *heads.stride()[:2],
        )

    def silu_multiply(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [..., 2 N], contiguous: silu of the first half times the second -> [..., N]."""
        size = gate_up.shape[-1] // 2
        output = gate_up.new_empty(*gate_up.shape[:-1], size)
        self._silu_multiply(
            _FORMATS[gate_up.dtype],
            gate_up.data_ptr(),
            output.data_ptr(),
            output.numel() // size,
            size,
            torch.get_num_threads(),
        )
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
        arguments = _TransferArguments(
            pool_addresses.ctypes.data, pool_bytes.ctypes.data, len(pools), ids.ctypes.data, addresses.ctypes.data,
            len(ids),
        )  # fmt: skip
        function(ctypes.byref(arguments))


def _function(function: Any, arguments: list[object]) -> Any:
    function.argtypes = arguments
    function.restype = None
    return function
