"""What the KV-echo model can be told: it has no weights, one number format, and this machine's memory for its pool."""

from __future__ import annotations

from pagoda_inference.kv.tiers.host import main_memory
from pagoda_inference.model.echo import bytes_per_block
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.memory_plan import plan_memory

_POOL_TOKENS = 16384
"""Where nobody says how many."""


def check_echo(dtype: str, device: str, draft: str, tensor_parallel: int) -> None:
    """Raises ModelLoadError for what it does not have."""
    if draft:
        raise ModelLoadError("The echo model has no smaller one: leave PAGODA_ENGINE_DRAFT empty.")
    if device not in ("auto", "cpu"):
        raise ModelLoadError(f"The echo model runs on a CPU, not on {device}: leave PAGODA_ENGINE_DEVICE empty.")
    if dtype in ("int8", "q4"):
        raise ModelLoadError(f"The echo model has no weights to keep as {dtype}: leave PAGODA_ENGINE_DTYPE empty.")
    if tensor_parallel > 1:
        raise ModelLoadError("The echo model has no layers to share: leave PAGODA_ENGINE_TENSOR_PARALLEL empty.")


def echo_pool_tokens(block_size: int, pool_tokens: int | None, pool_gib: float | None) -> int:
    """Tokens of its pool, of whole blocks where GiB are given. Raises ModelLoadError where memory does not suffice."""
    if pool_tokens is None and pool_gib is None:
        pool_tokens = _POOL_TOKENS
    plan = plan_memory(
        available=main_memory(),
        weights=0,
        activations=0,
        bytes_per_block=bytes_per_block(block_size),
        block_size=block_size,
        on_gpu=False,
        pool_tokens=pool_tokens,
        pool_gib=pool_gib,
    )
    return pool_tokens or plan.total_blocks * block_size
