"""Memory for weights in large pages, where the system gives them: streams of small pages cost a third of the speed."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress

import torch

_CHUNK = 64 << 20
ALIGNMENT = 64
"""Bytes of a line of the processor's caches."""


class WeightMemory:
    """Tensors one after the other in chunks; a chunk is freed with the last of its tensors."""

    def __init__(self) -> None:
        self._chunk = torch.empty(0, dtype=torch.uint8)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of any numbers."""
        size = math.prod(shape) * dtype.itemsize
        taken = -(-size // ALIGNMENT) * ALIGNMENT
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        if taken > len(self._chunk):
            self._chunk = large_pages(max(taken, _CHUNK))
        tensor, self._chunk = self._chunk[:size], self._chunk[taken:]
        return tensor.view(dtype).view(shape)


def large_pages(size: int) -> torch.Tensor:
    """uint8 [size] of zeros in a private mapping that takes its room as it is touched, and ends with its last tensor.

    Large pages where the system gives them. Raises OSError where there is no address space for it.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has small pages alone
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without: its small pages do
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
