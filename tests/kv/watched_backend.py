"""A KV-echo backend that watches what is done to its memory, and fails where a test wants it to."""

from __future__ import annotations

from collections.abc import Sequence

from pagoda_inference.kv.pool import Pool
from pagoda_inference.model.backend import Chunk, ChunkError, Result
from pagoda_inference.model.echo import EchoBackend

Owner = tuple[str, str]
"""Account and scope."""


class Payload(bytearray):
    """A block's bytes that remember whose they are."""

    owner: Owner | None = None


class BrokenModel(Exception):
    pass


class WatchedBackend(EchoBackend):
    """``wrong``: what may never happen and did. It is kept here because who calls a backend survives its exceptions.

    owners: who wrote each block last, None where nobody can say. fault: what the next step does wrong, once: ``step``
    (fails half done, and succeeds when it is computed again), ``chunk`` (fails again for one chunk), ``answer`` (one
    chunk has no answer) or ``copy`` (a copy-on-write fails). failing: what every copy between tiers fails with.
    """

    def __init__(self, block_size: int, blocks: int) -> None:
        super().__init__(block_size=block_size, pool_tokens=blocks * block_size, context_length=256)
        self.pool: Pool | None = None
        self.wrong: list[str] = []
        self.owners: list[Owner | None] = [None] * blocks
        self.fault = ""
        self.faults = 0
        """How many times a fault has come up."""
        self.failing = False
        self.copied = 0
        """Blocks copied on write."""
        self.retried = 0
        self._guilty: tuple[int, int] | None = None

    # --- steps --------------------------------------------------------------------------------------------------------

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        if len({id(chunk.block_table) for chunk in chunks}) < len(chunks):
            self.wrong.append("two chunks of one sequence in a step")
        for chunk in chunks:
            self._watch(chunk)
        if self._guilty is not None and len(chunks) == 1:
            table, start = self._guilty
            if (id(chunks[0].block_table), chunks[0].start) == (table, start):
                self._guilty = None
                self.faults += 1
                raise BrokenModel
        if self.fault in ("step", "chunk"):
            if self.fault == "chunk":
                self._guilty = id(chunks[-1].block_table), chunks[-1].start
            self.fault = ""
            self.retried += 1
            super().run(chunks[: (len(chunks) + 1) // 2])
            raise BrokenModel
        try:
            results = super().run(chunks)
        except Exception as error:
            self.wrong.append(f"the model could not compute {chunks}: {error!r}")
            raise
        if self.fault == "answer":
            self.fault = ""
            self.faults += 1
            results[len(chunks) // 2] = ChunkError("no numbers")
        return results

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        if self.fault == "copy":
            self.fault = ""
            self.retried += 1
            raise BrokenModel
        for source, destination in pairs:
            self.owners[destination] = self.owners[source]
        self.copied += len(pairs)
        super().copy_blocks(pairs)

    def _watch(self, chunk: Chunk) -> None:
        """Nobody writes what others read, and nobody reads what another wrote."""
        pool, size = self.pool, self.block_size
        assert pool is not None
        table = next((table for table in pool.tables if table.blocks is chunk.block_table), None)
        if table is None:
            self.wrong.append("a chunk without a table")
            return
        owner = table.account.id, table.chain.scope
        first, last = chunk.start // size, (chunk.start + len(chunk.token_ids) + len(chunk.drafts) - 1) // size
        for id in table.blocks[first : last + 1]:
            block = pool.block(id)
            if block.references != 1 or block.entry is not None:
                self.wrong.append(f"{block} is written by {owner}")
        for place, id in enumerate(table.blocks[: -(-chunk.start // size)]):
            if self.owners[id] not in ((owner, ("public", "public"), None)):
                self.wrong.append(f"{owner} reads a block of {self.owners[id]} at {place}")
        for id in table.blocks[first if chunk.start % size == 0 else first + 1 : last + 1]:
            self.owners[id] = owner

    # --- tiers --------------------------------------------------------------------------------------------------------

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        if self.failing:
            raise BrokenModel
        payloads = [Payload(payload) for payload in super().read_blocks(ids)]
        for id, payload in zip(ids, payloads, strict=True):
            payload.owner = self.owners[id]
        return list(payloads)

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        if self.failing:
            raise BrokenModel
        for id, payload in zip(ids, payloads, strict=True):
            if self.pool is not None:
                block = self.pool.block(id)
                if not block.references or block.entry is not None:
                    self.wrong.append(f"{block} is written by a copy")
            self.owners[id] = payload.owner if isinstance(payload, Payload) else None
        super().write_blocks(ids, payloads)
