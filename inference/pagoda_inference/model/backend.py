"""What the engine needs from a model: run one step's chunks, copy blocks. Everything else is the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pagoda_inference.decoding.sampling import Sampler


@dataclass(slots=True)
class Chunk:
    """The part of one sequence that a step computes: a slice of its prompt, or its newest token.

    token_ids: T >= 1 tokens whose KV is computed and written in this step.
    start: position of the first of them; positions 0..start-1 are in the pool already.
    block_table: physical block of each logical block, covering at least ``start + T`` tokens.
    sampler: how to choose the next token after the last of ``token_ids``; None when the chunk ends before the known
        end of the sequence, so that only its KV is wanted.
    """

    token_ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    sampler: Sampler | None = None


class ChunkError(Exception):
    """One chunk of a step failed (for example: logits that are not numbers). The step's other chunks are good."""


class Backend(Protocol):
    """A loaded model with its KV pool memory. Used from the engine's thread only."""

    block_size: int
    """Tokens per block."""
    total_blocks: int
    """Blocks in the pool: valid ids are 0..total_blocks-1."""
    bytes_per_block: int
    """KV bytes of one block over all layers."""
    context_length: int
    """Most tokens a sequence can have, prompt and output together."""
    vocabulary_size: int
    dtype: str
    device: str

    def run(self, chunks: Sequence[Chunk]) -> list[int | ChunkError | None]:
        """Compute one step for all chunks together.

        Returns, per chunk: the next token id, None where no sampler was given, or a ChunkError for that chunk alone.
        An exception means that the whole step failed and nothing was sampled.
        """
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (source, destination) within the pool, before the next ``run`` (copy-on-write)."""
        ...
