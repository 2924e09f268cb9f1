"""How many bytes a kernel moves, counted address by address while Triton interprets it.

    traffic = measured(rms_norm, inputs, weight, epsilon)
    assert traffic["inputs"].loaded.moved <= 1.05 * inputs.nbytes

Three counts, since none is the whole truth about a GPU:

* ``moved``: the 32-byte sectors that each program touches, a sector once per program. Memory is read and written in
  sectors, and a program's own second look at one is served by its multiprocessor's cache. This is what DRAM carries
  for tensors that are read by one program each, however large they are.
* ``accessed``: bytes by instruction: an address counts once per load or store, and again in the next one. A loop that
  goes through a row twice is two passes here: the count for rows that no first-level cache can hold.
* ``distinct``: bytes, an address counts once in the whole call: the least there can be. It is the right count for what
  is small and read by every program (a weight of a norm), which the second-level cache serves.

Lanes that are masked off count nowhere. Atomics do not count.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch

from tests.kernels.interpreted import interpreted

SECTOR_BYTES = 32


@dataclass(slots=True)
class Bytes:
    moved: int = 0
    accessed: int = 0
    distinct: int = 0


@dataclass(slots=True)
class TensorTraffic:
    loaded: Bytes = field(default_factory=Bytes)
    stored: Bytes = field(default_factory=Bytes)


def measured(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> dict[str, TensorTraffic]:
    """Call ``function`` (of a module's top level), interpreted, and count what its kernels load and store.

    Traffic is under the name of the parameter that the tensor was given as (``batch.slots`` for the field of a
    dataclass), ``result`` (``result[1]`` of a tuple) for returned tensors, and ``other`` for all the rest.
    """
    return interpreted(_measure)(function, arguments, keywords)


def _measure(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> dict[str, TensorTraffic]:
    accesses = _Accesses()
    with accesses.recorded():
        result = function(*arguments, **keywords)
    given = inspect.signature(function).bind(*arguments, **keywords).arguments
    tensors = [named for name, value in given.items() for named in _tensors(name, value)]
    return accesses.by_tensor([*tensors, *_tensors("result", result)])


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _tensors(f"{name}[{index}]", part)
    elif isinstance(value, dict):  # the **keywords of a function
        for key, part in value.items():
            yield from _tensors(str(key), part)
    elif is_dataclass(value):
        for part in fields(value):
            yield from _tensors(f"{name}.{part.name}", getattr(value, part.name, None))


class _Accesses:
    """Every load and store of the interpreter: (program, addresses of its bytes, each once)."""

    def __init__(self) -> None:
        self._of: dict[str, list[tuple[tuple[int, ...], np.ndarray]]] = {"loaded": [], "stored": []}
        self._launches = 0

    @contextmanager
    def recorded(self) -> Iterator[None]:
        from triton.runtime import interpreter

        builder = interpreter.interpreter_builder
        load, store, begin = builder.create_masked_load, builder.create_masked_store, builder.set_grid_dim

        def create_masked_load(pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
            self._record("loaded", builder, pointers, mask)
            return load(pointers, mask, *rest, **named)

        def create_masked_store(pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
            self._record("stored", builder, pointers, mask)
            return store(pointers, value, mask, *rest, **named)

        def set_grid_dim(*sizes: int) -> None:
            self._launches += 1
            begin(*sizes)

        builder.create_masked_load, builder.create_masked_store = create_masked_load, create_masked_store
        builder.set_grid_dim = set_grid_dim
        try:
            yield
        finally:
            del builder.create_masked_load, builder.create_masked_store, builder.set_grid_dim

    def _record(self, kind: str, builder: Any, pointers: Any, mask: Any) -> None:
        shown, lanes = np.broadcast_arrays(pointers.data, mask.data)
        first = np.unique(shown[lanes])
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        addresses = (first[:, None] + np.arange(size, dtype=np.uint64)).ravel()
        self._of[kind].append(((self._launches, *builder.grid_idx), addresses))

    def by_tensor(self, tensors: list[tuple[str, torch.Tensor]]) -> dict[str, TensorTraffic]:
        found: dict[str, TensorTraffic] = defaultdict(TensorTraffic)
        for name, tensor in tensors:
            begin, end = _extent(tensor)
            self._take(found, name, begin, end)
        self._take(found, "other", 0, 1 << 64)
        return dict(found)

    def _take(self, found: dict[str, TensorTraffic], name: str, begin: int, end: int) -> None:
        """Count and remove what lies in [begin, end)."""
        for kind, accesses in self._of.items():
            inside, rest = [], []
            for program, addresses in accesses:
                low, high = (int(np.searchsorted(addresses, edge)) for edge in (begin, min(end, (1 << 64) - 1)))
                inside.append((program, addresses[low:high]))
                rest.append((program, np.concatenate([addresses[:low], addresses[high:]])))
            self._of[kind] = rest
            counted = getattr(found[name], kind)
            counted.accessed += sum(addresses.size for _, addresses in inside)
            sectors: dict[tuple[int, ...], list[np.ndarray]] = defaultdict(list)
            for program, addresses in inside:
                sectors[program].append(addresses // SECTOR_BYTES)
            counted.moved += SECTOR_BYTES * sum(np.unique(np.concatenate(parts)).size for parts in sectors.values())
            counted.distinct += np.unique(np.concatenate([addresses for _, addresses in inside])).size if inside else 0


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses from the first byte of ``tensor`` to behind its last one."""
    if tensor.numel() == 0:
        return 0, 0
    begin = tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()
