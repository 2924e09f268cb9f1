"""The arguments of native functions: number formats, and mirrors of the structures in the C++ headers."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

FORMATS = {torch.float32: 0, torch.bfloat16: 1}
"""Number formats that the native kernels know."""
POINTER, INT64, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float


class AttentionArguments(ctypes.Structure):
    """Mirror of AttentionArguments in attention.h."""

    _fields_ = [
        *[(name, POINTER) for name in ("query", "keys", "values", "output", "sinks")],
        *[(name, POINTER) for name in ("query_starts", "context_lengths", "block_tables")],
        *[(name, INT64) for name in ("query_token_stride", "query_head_stride", "table_stride")],
        *[(name, INT64) for name in ("sequences", "query_heads", "kv_heads", "head_size", "value_size", "block_size")],
        ("window", INT64),
        ("scaling", FLOAT),
        ("softcap", FLOAT),
        ("threads", INT),
    ]


class SamplingArguments(ctypes.Structure):
    """Mirror of SamplingArguments in sampling.h."""

    _fields_ = [
        *[(name, POINTER) for name in ("logits", "uniforms", "temperatures", "top_k", "top_p", "min_p", "tokens")],
        *[(name, INT64) for name in ("row_stride", "rows", "size")],
        ("threads", INT),
    ]


class TransferArguments(ctypes.Structure):
    """Mirror of TransferArguments in transfer.h."""

    _fields_ = [
        *[(name, POINTER) for name in ("pools", "pool_bytes")],
        ("pool_count", INT64),
        *[(name, POINTER) for name in ("blocks", "payloads")],
        ("block_count", INT64),
    ]


class LinearArguments(ctypes.Structure):
    """Mirror of LinearArguments in layer.h."""

    _fields_ = [
        *[(name, POINTER) for name in ("packed", "bias")],
        *[(name, INT64) for name in ("columns", "inner", "bits")],
    ]


class LayerArguments(ctypes.Structure):
    """Mirror of LayerArguments in layer.h."""

    _fields_ = [
        *[(name, LinearArguments) for name in ("qkv", "output", "gate_up", "down")],
        *[(name, POINTER) for name in ("input_norm", "post_norm")],
        *[(name, FLOAT) for name in ("input_epsilon", "post_epsilon")],
        ("attention", AttentionArguments),
        *[(name, POINTER) for name in ("key_pool", "value_pool", "slots", "input", "cosine", "sine", "result")],
        *[(name, INT64) for name in ("rows", "rotary_size")],
    ]


def function(function: Any, arguments: list[object]) -> Any:
    """A C function that takes ``arguments`` and returns nothing."""
    function.argtypes = arguments
    function.restype = None
    return function
