"""Random paged attention problems, and attention written the plain way to compare with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pagoda_kernels import PagedBatch, reference


@dataclass
class PagedCase:
    """Sequences given as (query tokens, context); their blocks lie in random order among rivals' blocks."""

    query: torch.Tensor
    key_pool: torch.Tensor
    value_pool: torch.Tensor
    batch: PagedBatch
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    """Per sequence, the whole context: [context, Hkv, D]."""

    @classmethod
    def make(
        cls,
        lengths: Sequence[tuple[int, int]],
        *,
        query_heads: int = 6,
        kv_heads: int = 2,
        head_size: int = 16,
        value_size: int = 16,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> PagedCase:
        torch.manual_seed(seed)
        needed = [-(-context // block_size) for _, context in lengths]
        blocks = random.Random(seed).sample(range(sum(needed) + 5), sum(needed))
        tables = torch.zeros(len(lengths), max(needed), dtype=torch.int32)
        # What no sequence has written is not a number: reading it shows.
        key_pool = torch.full((sum(needed) + 5, kv_heads, head_size, block_size), torch.nan, dtype=dtype)
        value_pool = torch.full((sum(needed) + 5, kv_heads, block_size, value_size), torch.nan, dtype=dtype)
        keys, values, own_slots = [], [], []
        for row, (length, context) in enumerate(lengths):
            own = [blocks.pop() for _ in range(needed[row])]
            tables[row, : len(own)] = torch.tensor(own)
            keys.append(torch.randn(context, kv_heads, head_size).to(dtype))
            values.append(torch.randn(context, kv_heads, value_size).to(dtype))
            slots = torch.tensor([own[p // block_size] * block_size + p % block_size for p in range(context)])
            reference.write_kv(keys[-1], values[-1], key_pool, value_pool, slots)
            own_slots.append(slots[context - length :])
        starts = torch.tensor([0, *(length for length, _ in lengths)]).cumsum(0).int()
        contexts = torch.tensor([context for _, context in lengths], dtype=torch.int32)
        query = torch.randn(int(starts[-1]), query_heads, head_size).to(dtype)
        batch = PagedBatch(starts, contexts, tables, torch.cat(own_slots))
        return cls(query, key_pool, value_pool, batch, keys, values)

    def plain(
        self,
        *,
        scaling: float,
        sliding_window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Token by token, head by head, in float64."""
        rows = []
        for sequence, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            start, end = self.batch.query_starts[sequence : sequence + 2].tolist()
            for row in range(start, end):
                position = keys.shape[0] - (end - row)
                first = 0 if sliding_window is None else max(0, position - sliding_window + 1)
                heads = []
                for head in range(self.query.shape[1]):
                    kv_head = head * keys.shape[1] // self.query.shape[1]
                    scores = keys[first : position + 1, kv_head].double() @ self.query[row, head].double() * scaling
                    if softcap is not None:
                        scores = softcap * torch.tanh(scores / softcap)
                    if sinks is not None:
                        scores = torch.cat([scores, sinks[head : head + 1].double()])
                    weights = scores.softmax(0)[: position + 1 - first]
                    heads.append(weights @ values[first : position + 1, kv_head].double())
                rows.append(torch.stack(heads))
        return torch.stack(rows)
