"""Our attention in transformers' models: the function registered in its AttentionInterface.

transformers' model code calls it for every layer with the step's queries, keys and values after RoPE. What they are
attended to is decided by the ``paged_step`` that the caller passes through ``model(..., paged_step=...)``.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from transformers import AttentionInterface

NAME = "pagoda_paged"


class PagedStep(Protocol):
    """Attention of one forward pass."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        sliding_window: int | None,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """Store key [T, Hkv, D] and value [T, Hkv, Dv] of ``layer``; attend query [T, Hq, D] -> [T, Hq, Dv]."""
        ...


def _paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged_step: PagedStep,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, Hq, T, D], key and value [1, Hkv, T, D] of one flattened stream -> [1, T, Hq, D].

    The window is the keyword's, never the module's: layers that alternate share a module attribute in some models.
    """
    attended = paged_step.attend(
        int(module.layer_idx),  # type: ignore[arg-type]
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        sliding_window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    return attended[None], None


AttentionInterface.register(NAME, _paged_attention)
