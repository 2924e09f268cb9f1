"""Blocks travel between the pools and the host: one launch packs them, one copy to or from pinned memory moves them.

Both are queued on a stream of their own, behind what the current stream has been given so far. Whoever asked need not
wait: a Transfer says when it has arrived, and can be put before whatever the current stream gets next. Until then its
blocks must not be written (read_blocks) or used (write_blocks) by others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch

from pagoda_kernels import reference
from pagoda_kernels.triton_layers.block_copy import stage_blocks
from pagoda_kernels.triton_layers.pool_table import pool_table


@dataclass(frozen=True, slots=True)
class Transfer:
    """Blocks on their way. payloads: uint8 [N, bytes of a payload], pinned memory of the host.

    event: None where the device has no streams, and all is done.
    """

    payloads: torch.Tensor
    event: torch.cuda.Event | None

    def arrived(self) -> bool:
        """Whether all bytes are where they belong. Never waits."""
        return self.event is None or self.event.query()

    def wait(self) -> None:
        """Block the calling thread until they are."""
        if self.event is not None:
            self.event.synchronize()

    def precede_current_stream(self) -> None:
        """Whatever the current stream is given from now on comes behind this transfer. The caller does not wait."""
        if self.event is not None:
            self.event.wait(torch.cuda.current_stream(self.event.device))


def read_blocks(pools: Sequence[torch.Tensor], blocks: Sequence[int]) -> Transfer:
    """Begin to copy ``blocks`` to the host. Raises IndexError for a block that does not exist."""
    reference.check_blocks(pools, blocks)
    table, device = pool_table(pools), pools[0].device
    with _side_stream(device) as stream:
        staged = torch.empty(len(blocks), table.payload, dtype=torch.uint8, device=device)
        stage_blocks(table, _on_device(blocks, device), staged, to_pools=False)
        if stream is None:
            return Transfer(staged, None)
        host = torch.empty(staged.shape, dtype=torch.uint8, pin_memory=True)
        host.copy_(staged, non_blocking=True)
        return Transfer(host, stream.record_event())


def write_blocks(
    pools: Sequence[torch.Tensor], blocks: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]
) -> Transfer:
    """Begin to copy payloads of ``read_blocks`` into ``blocks``, all different; they are taken before this returns.

    Raises IndexError or ValueError for blocks or payloads that do not fit the pools; nothing is written then.
    """
    reference.check_blocks(pools, blocks, payloads)
    table, device = pool_table(pools), pools[0].device
    host = torch.empty(len(blocks), table.payload, dtype=torch.uint8, pin_memory=device.type == "cuda")
    for row, payload in zip(host.numpy(), payloads, strict=True):
        row.data[:] = memoryview(payload).cast("B")
    with _side_stream(device) as stream:
        stage_blocks(table, _on_device(blocks, device), host.to(device, non_blocking=True), to_pools=True)
        return Transfer(host, None if stream is None else stream.record_event())


def gather_blocks(pools: Sequence[torch.Tensor], blocks: Sequence[int]) -> list[bytearray]:
    """As ``reference.gather_blocks``; a block's bytes are in the order in which its pool's memory has them."""
    transfer = read_blocks(pools, blocks)
    transfer.wait()
    return [bytearray(row) for row in transfer.payloads.numpy()]


def scatter_blocks(
    pools: Sequence[torch.Tensor], blocks: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]
) -> None:
    """As ``reference.scatter_blocks``, of payloads of ``gather_blocks``."""
    write_blocks(pools, blocks, payloads).wait()


@contextmanager
def _side_stream(device: torch.device) -> Iterator[torch.cuda.Stream | None]:
    """The stream of the device's transfers, behind what its current stream has been given; None without streams."""
    if device.type != "cuda":
        yield None
        return
    stream = _stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield stream


@lru_cache(maxsize=16)
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _on_device(blocks: Sequence[int], device: torch.device) -> torch.Tensor:
    host = torch.tensor(list(blocks), dtype=torch.int64, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)
