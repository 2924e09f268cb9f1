"""The set of kernels that a model runs on. All sets compute the same thing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from pagoda_kernels import reference
from pagoda_kernels.native.build import BuildError, build
from pagoda_kernels.native.library import NativeLibrary

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Functions with the signatures and meaning of pagoda_kernels.reference; on CPUs the native library, if any."""

    name: str
    write_kv: Callable[..., None]
    copy_blocks: Callable[..., None]
    gather_blocks: Callable[..., list[bytearray]]
    scatter_blocks: Callable[..., None]
    paged_attention: Callable[..., torch.Tensor]
    native: NativeLibrary | None = None


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
