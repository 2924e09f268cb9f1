"""The pool's memory: key and value tensors of every layer, and a step's view of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from pagoda_inference.model.staging import Staging
from pagoda_inference.model.step_arrays import StepArrays
from pagoda_inference.model.zero_memory import zeros_on_demand
from pagoda_kernels import Kernels, PagedBatch


@dataclass(frozen=True, slots=True)
class LayerShape:
    """KV geometry of one layer, and the sliding window that its attention was called with."""

    kv_heads: int
    key_size: int
    value_size: int
    sliding_window: int | None = None

    def elements_per_token(self) -> int:
        return self.kv_heads * (self.key_size + self.value_size)


class KvMemory:
    """Pools of all layers: keys [blocks, kv_heads, key_size, block_size], values [blocks, kv_heads, block_size, ...].

    Zero-filled, so that a slot that was never written holds numbers. In main memory a block takes room from its first
    use on. keys_together: the memory of the key pools is [blocks, kv_heads, block_size, key_size], and shown
    transposed: what GPUs read and write fastest, and the default there. Payloads of blocks hold bytes in the memory's
    order: those of one layout mean nothing in the other.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        *,
        total_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        kernels: Kernels,
        keys_together: bool | None = None,
    ) -> None:
        self.total_blocks = total_blocks
        self.block_size = block_size
        self.device = device
        self.kernels = kernels
        self.keys_together = device.type == "cuda" if keys_together is None else keys_together

        shapes: list[tuple[int, ...]] = []
        for shape in layers:
            tail = (block_size, shape.key_size) if self.keys_together else (shape.key_size, block_size)
            shapes.append((total_blocks, shape.kv_heads, *tail))
            shapes.append((total_blocks, shape.kv_heads, block_size, shape.value_size))
        self._pools = _zeros(shapes, dtype, device)
        """All pools as they lie in memory, contiguous: layer after layer, keys then values."""
        keys, self.values = self._pools[::2], self._pools[1::2]
        self.keys = [memory.transpose(2, 3) for memory in keys] if self.keys_together else keys
        self.bytes_per_block = sum(memory[0].nbytes for memory in self._pools)
        self._staging = Staging(device) if device.type == "cuda" else None

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.kernels.copy_blocks(self._pools, pairs)

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        """One payload of ``bytes_per_block`` per block: layer after layer, keys then values. From any thread.

        On a GPU behind what the steps have queued so far; the Triton kernels' copies have a stream of their own, beside
        what the steps queue from now on.
        """
        with torch.inference_mode(), self._on_device():
            return self.kernels.gather_blocks(self._pools, ids)

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        """Put such payloads back: they are there for every step from now on. From any thread.

        Raises IndexError or ValueError, having written nothing, for blocks or payloads that do not fit the pool.
        """
        with torch.inference_mode(), self._on_device():
            self.kernels.scatter_blocks(self._pools, ids, payloads)

    def tensors(self, step: StepArrays) -> dict[str, torch.Tensor]:
        """The step's arrays on the pools' device, by name. On a GPU good until the next call."""
        if self._staging is not None:
            return self._staging.put(step.arrays())
        return {name: torch.from_numpy(array) for name, array in step.arrays().items()}

    def _on_device(self) -> AbstractContextManager[object]:
        """Kernels are launched on the thread's current GPU: other threads than the engine's may have another."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()


def _zeros(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device) -> list[torch.Tensor]:
    if device.type == "cpu":
        return zeros_on_demand(shapes, dtype)
    return [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes]


class KvStep:
    """A PagedStep over the pools. tensors: the arrays of ``step``, by name, on the pools' device."""

    def __init__(self, memory: KvMemory, step: StepArrays, tensors: Mapping[str, torch.Tensor]) -> None:
        self._memory = memory
        self.batch = PagedBatch(
            query_starts=tensors["query_starts"],
            context_lengths=tensors["context_lengths"],
            block_tables=tensors["block_tables"],
            slots=tensors["slots"],
            longest_query=step.longest_query,
            longest_context=step.longest_context,
        )

    def pools(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Key and value pool of ``layer``, for native code that writes and reads them itself."""
        return self._memory.keys[layer], self._memory.values[layer]

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        sliding_window: int | None,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        key_pool, value_pool = self._memory.keys[layer], self._memory.values[layer]
        kernels = self._memory.kernels
        kernels.write_kv(key, value, key_pool, value_pool, self.batch.slots)
        return kernels.paged_attention(
            query,
            key_pool,
            value_pool,
            self.batch,
            scaling=scaling,
            sliding_window=sliding_window,
            softcap=softcap,
            sinks=sinks,
        )
