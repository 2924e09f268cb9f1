"""The pool's memory: key and value tensors of every layer, and a step's view of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from pagoda_inference.model.backend import Chunk
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

    Zero-filled, so that a slot that was never written holds numbers.
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
    ) -> None:
        self.total_blocks = total_blocks
        self.block_size = block_size
        self.device = device
        self.kernels = kernels
        self.keys = [
            torch.zeros(total_blocks, s.kv_heads, s.key_size, block_size, dtype=dtype, device=device) for s in layers
        ]
        self.values = [
            torch.zeros(total_blocks, s.kv_heads, block_size, s.value_size, dtype=dtype, device=device) for s in layers
        ]
        self._layers = [pool for layer in zip(self.keys, self.values, strict=True) for pool in layer]
        self.bytes_per_block = sum(pool[0].nbytes for pool in self._layers)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.kernels.copy_blocks([*self.keys, *self.values], pairs)

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        """One payload of ``bytes_per_block`` per block: layer after layer, keys then values. From any thread.

        On a GPU the copies have a stream of their own, behind what the steps have queued so far and beside what they
        queue from now on.
        """
        with self._transfer():
            return self.kernels.gather_blocks(self._layers, ids)

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        """Put such payloads back; they have arrived when this returns. From any thread.

        Raises IndexError or ValueError, having written nothing, for blocks or payloads that do not fit the pool.
        """
        with self._transfer():
            self.kernels.scatter_blocks(self._layers, ids, payloads)

    @contextmanager
    def _transfer(self) -> Iterator[None]:
        with torch.inference_mode():
            if self._stream is None:
                yield
                return
            self._stream.wait_stream(torch.cuda.default_stream(self.device))
            with torch.cuda.stream(self._stream):
                yield
                self._stream.synchronize()

    def step(self, chunks: Sequence[Chunk]) -> KvStep:
        return KvStep(self, chunks)


class KvStep:
    """A PagedStep over the pools: the chunks' tokens as one stream, in order."""

    def __init__(self, memory: KvMemory, chunks: Sequence[Chunk]) -> None:
        self._memory = memory
        block_size = memory.block_size
        lengths = [len(chunk.token_ids) for chunk in chunks]
        contexts = [chunk.start + length for chunk, length in zip(chunks, lengths, strict=True)]
        blocks = [-(-context // block_size) for context in contexts]
        if not chunks or min(lengths) == 0 or any(n > len(c.block_table) for n, c in zip(blocks, chunks, strict=True)):
            raise ValueError("a step needs chunks of at least one token with block tables that cover them")
        tables = np.zeros((len(chunks), max(blocks)), dtype=np.int32)
        for row, (chunk, count) in enumerate(zip(chunks, blocks, strict=True)):
            tables[row, :count] = chunk.block_table[:count]
        starts = np.zeros(len(chunks) + 1, dtype=np.int32)
        np.cumsum(lengths, out=starts[1:])
        sequence = np.repeat(np.arange(len(chunks)), lengths)
        first = np.fromiter((chunk.start for chunk in chunks), np.int64, len(chunks))
        positions = np.arange(starts[-1]) - starts[sequence] + first[sequence]
        slots = tables[sequence, positions // block_size].astype(np.int64) * block_size + positions % block_size
        self.positions = self._tensor(positions)
        """Position of each token in its sequence: int64 [T]."""
        self.last_rows = starts[1:] - 1
        """Row of each chunk's last token."""
        self.batch = PagedBatch(
            query_starts=self._tensor(starts),
            context_lengths=self._tensor(np.array(contexts, dtype=np.int32)),
            block_tables=self._tensor(tables),
            slots=self._tensor(slots),
        )

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

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._memory.device)
