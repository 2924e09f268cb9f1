"""The set of kernels that a model runs on. All sets compute the same thing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pagoda_kernels import reference
from pagoda_kernels.native.build import BuildError, build
from pagoda_kernels.native.library import NativeLibrary

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Layers:
    """Functions with the signatures and meaning of pagoda_kernels.layer_reference."""

    rms_norm: Callable[..., torch.Tensor]
    rotate: Callable[..., None]
    gated_activation: Callable[..., torch.Tensor]
    sample: Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Functions with the signatures and meaning of pagoda_kernels.reference; what a set adds to them, if anything.

    native: the library, on CPUs. layers: fused layers and sampling, on GPUs. read_blocks, write_blocks: on GPUs, what
    gather_blocks and scatter_blocks do, without waiting (triton_layers/block_transfer.py).
    """

    name: str
    write_kv: Callable[..., None]
    copy_blocks: Callable[..., None]
    gather_blocks: Callable[..., list[bytearray]]
    scatter_blocks: Callable[..., None]
    paged_attention: Callable[..., torch.Tensor]
    native: NativeLibrary | None = None
    layers: Layers | None = None
    read_blocks: Callable[..., Any] | None = None
    write_blocks: Callable[..., Any] | None = None


def kernels_for(device: torch.device, home: Path) -> Kernels:
    """The fastest kernels that ``device`` has: Triton's on CUDA, native ones on a CPU, else plain torch.

    home: where native ones are built. Never raises: what is missing is a warning, and slower.
    """
    if device.type == "cuda":
        return gpu_kernels(device)
    return cpu_kernels(home) if device.type == "cpu" else torch_kernels()


def gpu_kernels(device: torch.device) -> Kernels:
    """Triton's kernels; plain torch, and a warning, without Triton. Raises ValueError for other devices than CUDA."""
    from pagoda_kernels.triton_kernels import triton_kernels

    return triton_kernels(device)


def torch_kernels() -> Kernels:
    """Plain torch: any device, no compiler."""
    return Kernels(
        "torch",
        reference.write_kv,
        reference.copy_blocks,
        reference.gather_blocks,
        reference.scatter_blocks,
        reference.paged_attention,
    )


def cpu_kernels(home: Path) -> Kernels:
    """Native kernels, built once under ``home``/build; plain torch, and a warning, where they cannot be built."""
    try:
        native = NativeLibrary(build(home / "build"))
    except (BuildError, OSError) as error:
        logger.warning("Running on plain torch, which is several times slower: %s.", error)
        return torch_kernels()
    return Kernels(
        "native",
        native.write_kv,
        native.copy_blocks,
        native.gather_blocks,
        native.scatter_blocks,
        native.paged_attention,
        native,
    )
