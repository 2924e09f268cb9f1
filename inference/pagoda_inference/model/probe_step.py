"""A forward pass without a pool, to learn how a model calls its attention."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from pagoda_inference.model.kv_memory import LayerShape
from pagoda_inference.model.paged_attention import MaskRule
from pagoda_kernels import Kernels, PagedBatch


class ProbeStep:
    """A PagedStep over T tokens of one sequence from position 0.

    shapes: geometry by layer. parameters: what each layer's attention was called with (scaling, softcap, ...).
    calls: how often each layer attended. masks: by layer, the rule of the mask that its attention was given; unknown:
    names of arguments that mean nothing to us. Both are noted in a run with the attention PROBE alone.
    """

    def __init__(self, kernels: Kernels) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.parameters: dict[int, dict[str, Any]] = {}
        self.calls: Counter[int] = Counter()
        self.masks: dict[int, MaskRule | None] = {}
        self.unknown: set[str] = set()
        self._kernels = kernels

    def note(self, layer: int, mask: MaskRule | None, unknown: frozenset[str]) -> None:
        self.masks[layer] = mask
        self.unknown |= unknown

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        sliding_window: int | None,
        **parameters: Any,
    ) -> torch.Tensor:
        length, kv_heads, key_size = key.shape
        self.calls[layer] += 1
        self.parameters[layer] = {"sliding_window": sliding_window, **parameters}
        self.shapes[layer] = LayerShape(kv_heads, key_size, value.shape[2], sliding_window)
        key_pool = key.new_zeros(1, kv_heads, key_size, length)
        value_pool = value.new_zeros(1, kv_heads, length, value.shape[2])
        slots = torch.arange(length, device=key.device)
        int32: dict[str, Any] = {"dtype": torch.int32, "device": key.device}
        batch = PagedBatch(
            query_starts=torch.tensor([0, length], **int32),
            context_lengths=torch.tensor([length], **int32),
            block_tables=torch.zeros(1, 1, **int32),
            slots=slots,
        )
        self._kernels.write_kv(key, value, key_pool, value_pool, slots)
        return self._kernels.paged_attention(
            query, key_pool, value_pool, batch, sliding_window=sliding_window, **parameters
        )
