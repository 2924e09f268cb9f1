"""What paged attention launches for a shape, recorded in place of running it, and compiled for a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pagoda_kernels import PagedBatch
from pagoda_kernels.triton_attention import launch
from tests.kernels.launches import Launch, launches_of


def recorded(
    monkeypatch: pytest.MonkeyPatch,
    *,
    sequences: int = 64,
    tokens: int = 64,
    longest_query: int = 1,
    longest_context: int = 4096,
    query_heads: int = 32,
    kv_heads: int = 8,
    head_size: int = 128,
    value_size: int = 128,
    block_size: int = 16,
    dtype: torch.dtype = torch.bfloat16,
    pool_dtype: torch.dtype | None = None,
    blocks: int = 100_000,
    processors: int = 132,
    architecture: int = 90,
    **parameters: Any,
) -> list[Launch]:
    """The launches of a step on tensors that have no memory: whatever would read one on the host fails."""
    monkeypatch.setattr(launch, "_device", lambda device: (processors, architecture))
    pool_dtype = pool_dtype or dtype
    with torch.device("meta"):
        query = torch.empty(tokens, query_heads, head_size, dtype=dtype)
        key_pool = torch.empty(blocks, kv_heads, block_size, head_size, dtype=pool_dtype).transpose(2, 3)
        value_pool = torch.empty(blocks, kv_heads, block_size, value_size, dtype=pool_dtype)
        batch = PagedBatch(
            torch.empty(sequences + 1, dtype=torch.int32),
            torch.empty(sequences, dtype=torch.int32),
            torch.empty(sequences, -(-longest_context // block_size), dtype=torch.int32),
            torch.empty(tokens, dtype=torch.int64),
            longest_query,
            longest_context,
        )
        for name in ("sinks", "alibi_slopes"):
            if parameters.get(name):
                parameters[name] = torch.empty(query_heads)
        for name in ("key_scale", "value_scale"):
            if parameters.get(name):
                parameters[name] = torch.empty(kv_heads)

        def attend() -> None:
            output = launch.paged_attention(query, key_pool, value_pool, batch, scaling=0.1, **parameters)
            assert output.shape == (tokens, query_heads, value_size)

        return launches_of(attend)
