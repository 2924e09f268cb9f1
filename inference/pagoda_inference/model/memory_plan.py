"""How the machine's memory is divided: weights, a step's activations, and the rest for the KV pool."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda_inference.model.errors import ModelLoadError

GIB = 1 << 30
_CPU_POOL_SHARE, _CPU_POOL_MOST = 0.25, 2 * GIB
"""Without a setting the pool is a modest guest in main memory …"""
_GPU_POOL_SHARE = 0.9
"""… and takes what a GPU, which has no other purpose, has left."""
_STEP_TOKENS = 2048
"""Tokens of a step that activations are planned for."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of each part, and the blocks that the pool's bytes make."""

    available: int
    weights: int
    activations: int
    pool: int
    total_blocks: int

    def __str__(self) -> str:
        def gib(size: int) -> str:
            return f"{size / GIB:.2f} GiB"

        return (
            f"memory plan: {gib(self.weights)} weights + {gib(self.activations)} activations + {gib(self.pool)} "
            f"KV pool ({self.total_blocks} blocks) of {gib(self.available)} available"
        )


def activation_bytes(hidden_size: int, intermediate_size: int, vocabulary_size: int, element_bytes: int) -> int:
    """Activations of a step: a few residual streams, one MLP, and logits for up to 256 sequences in two copies."""
    per_token = (8 * hidden_size + 3 * intermediate_size) * element_bytes
    return _STEP_TOKENS * per_token + 2 * 256 * vocabulary_size * 4


def check_model_fits(*, available: int, weights: int, activations: int) -> None:
    """Raises ModelLoadError where nothing would be left for a pool."""
    if weights + activations >= available:
        raise ModelLoadError(
            f"The model needs {(weights + activations) / GIB:.1f} GiB (weights and activations) but only "
            f"{available / GIB:.1f} GiB of memory are available: choose a smaller model or dtype, or free memory."
        )


def plan_memory(
    *,
    available: int,
    weights: int,
    activations: int,
    bytes_per_block: int,
    block_size: int,
    on_gpu: bool,
    pool_tokens: int | None = None,
    pool_gib: float | None = None,
) -> MemoryPlan:
    """Divide ``available`` bytes. The pool is as large as asked for, or a share of what is left.

    Raises ModelLoadError when the pool asked for does not fit.
    """
    left = available - weights - activations
    if pool_tokens is not None:
        pool = -(-pool_tokens // block_size) * bytes_per_block
    elif pool_gib is not None:
        pool = int(pool_gib * GIB)
    elif on_gpu:
        pool = int(left * _GPU_POOL_SHARE)
    else:
        pool = min(_CPU_POOL_MOST, int(left * _CPU_POOL_SHARE))
    if pool > left:
        raise ModelLoadError(
            f"A KV pool of {pool / GIB:.1f} GiB does not fit: {left / GIB:.1f} GiB are left beside the model "
            "(make the pool smaller)."
        )
    total_blocks = pool // bytes_per_block
    if total_blocks < 1:
        raise ModelLoadError(
            f"A KV pool of {pool} bytes holds no block: one of {block_size} tokens takes {bytes_per_block} bytes."
        )
    return MemoryPlan(available, weights, activations, total_blocks * bytes_per_block, total_blocks)
