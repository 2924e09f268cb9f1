"""Tensors of zeros that take room in main memory only where they have been used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch

from pagoda_kernels.native.memory import ALIGNMENT, large_pages


def zeros_on_demand(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    """Contiguous CPU tensors of ``shapes`` (none of them empty), side by side in one private mapping.

    The system fills a page with zeros when it is first touched, so nothing is written here. Large pages where it gives
    them. The mapping ends with the last of its tensors. Raises OSError where there is no address space for it.
    """
    sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
    *places, total = accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0)
    room = large_pages(total)
    return [
        room[place : place + size].view(dtype).view(shape)
        for place, size, shape in zip(places, sizes, shapes, strict=True)
    ]
