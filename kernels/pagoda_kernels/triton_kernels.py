"""The set of kernels for CUDA devices, in Triton. Triton is imported when the set is made, never before."""

from __future__ import annotations

import logging
import os

import torch

from pagoda_kernels.kernels import Kernels, Layers, torch_kernels

logger = logging.getLogger(__name__)


def triton_kernels(device: torch.device) -> Kernels:
    """Kernels for ``device``; plain torch, and a warning, where Triton is not installed or cannot be imported.

    Raises ValueError for a device that is not CUDA. Each kernel is compiled when a shape first needs it, once per
    machine (in TRITON_CACHE_DIR).
    """
    if device.type != "cuda":
        raise ValueError(f"Triton's kernels are for CUDA devices, not {device}")
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # multiply-add, as it was compiled and counted in the tests
    try:
        from pagoda_kernels import triton_layers
        from pagoda_kernels.triton_attention import paged_attention
    except ImportError as error:
        logger.warning("Running on plain torch, which is many times slower: Triton cannot be imported (%s).", error)
        return torch_kernels()
    return Kernels(
        "triton",
        triton_layers.write_kv,
        triton_layers.copy_blocks,
        triton_layers.gather_blocks,
        triton_layers.scatter_blocks,
        paged_attention,
        layers=Layers(
            triton_layers.rms_norm, triton_layers.rotate, triton_layers.gated_activation, triton_layers.sample
        ),
        read_blocks=triton_layers.read_blocks,
        write_blocks=triton_layers.write_blocks,
    )
