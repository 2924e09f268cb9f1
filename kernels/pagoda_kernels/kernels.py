"""The set of kernels that a model runs on. All sets compute the same thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from pagoda_kernels import reference


@dataclass(frozen=True, slots=True)
class Kernels:
    """Functions with the signatures and meaning of pagoda_kernels.reference."""

    name: str
    write_kv: Callable[..., None]
    copy_blocks: Callable[..., None]
    paged_attention: Callable[..., torch.Tensor]


def torch_kernels() -> Kernels:
    """Plain torch: any device, no compiler."""
    return Kernels("torch", reference.write_kv, reference.copy_blocks, reference.paged_attention)


def cpu_kernels(home: Path) -> Kernels:
    """The fastest set for this CPU. ``home``: where a native build may be kept."""
    return torch_kernels()
