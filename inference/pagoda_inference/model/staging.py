"""A step's small inputs reach the device together: packed into one pinned buffer, moved by one copy that nobody waits
for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

ALIGNMENT = 16
"""Bytes to whose multiples every array is put: what a GPU loads at once."""
_LEAST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array lies in a buffer: ``offset`` in bytes."""

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape))


def layout(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Place], int]:
    """One place for each array, one behind the other, and the bytes of all. Depends on shapes and dtypes alone."""
    places: dict[str, Place] = {}
    end = 0
    for name, array in arrays.items():
        places[name] = Place(end, array.dtype, array.shape)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return places, end


def pack(arrays: Mapping[str, np.ndarray], places: Mapping[str, Place], buffer: np.ndarray) -> None:
    """Copy each array to its place in ``buffer``, uint8."""
    for name, array in arrays.items():
        place = places[name]
        part = buffer[place.offset : place.offset + place.nbytes]
        part.view(array.dtype).reshape(array.shape)[...] = array


def unpacked(buffer: torch.Tensor, places: Mapping[str, Place]) -> dict[str, torch.Tensor]:
    """The arrays as tensors that share the memory of ``buffer``, uint8."""
    tensors = {}
    for name, place in places.items():
        part = buffer[place.offset : place.offset + place.nbytes]
        tensors[name] = part.view(_DTYPES[place.dtype.name]).view(place.shape)
    return tensors


_DTYPES = {"int32": torch.int32, "int64": torch.int64, "float32": torch.float32, "float64": torch.float64}


class Staging:
    """Two buffers, of which only the front is used by small steps: on the host (pinned) and on the device.

    What ``put`` gives is good until the next ``put``: the device's stream keeps the order. Buffers grow as steps do,
    unless ``capacity`` (bytes) is given: then equal shapes always have equal addresses, as a captured graph needs.
    """

    def __init__(self, device: torch.device, capacity: int | None = None) -> None:
        self._device = device
        self._fixed = capacity is not None
        self._copied: torch.cuda.Event | None = None
        self._allocate(capacity or _LEAST_BYTES)

    def put(self, arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        """The arrays on the device. Waits for nothing but the copy of the ``put`` before.

        Raises ValueError where they do not fit the given capacity.
        """
        places, size = layout(arrays)
        if self._copied is not None:
            self._copied.synchronize()
        if size > len(self._host):
            if self._fixed:
                raise ValueError(f"{size} bytes do not fit a buffer of {len(self._host)}")
            self._allocate(1 << (size - 1).bit_length())
        pack(arrays, places, self._host.numpy())
        self._on_device[:size].copy_(self._host[:size], non_blocking=True)
        if self._device.type == "cuda":
            self._copied = self._copied or torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(self._device))
        return unpacked(self._on_device, places)

    def _allocate(self, size: int) -> None:
        self._host = torch.empty(size, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        self._on_device = torch.empty(size, dtype=torch.uint8, device=self._device)
