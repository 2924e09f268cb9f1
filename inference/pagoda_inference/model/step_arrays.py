"""What a step's forward pass needs of its chunks, as arrays: the tokens of all chunks as one stream, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np

from pagoda_inference.model.backend import Chunk


@dataclass(frozen=True, slots=True)
class StepArrays:
    """T tokens of S chunks; R rows of the stream whose logits are wanted.

    tokens, positions, slots: int64 [T], a token's id, its position in its sequence, and where its KV is written (block
    times block_size plus offset; below 0: nowhere). rows: int64 [R]. query_starts: int32 [S + 1], context_lengths:
    int32 [S], block_tables: int32 [S, B], as in PagedBatch. longest_query, longest_context: of any chunk, or more.
    """

    tokens: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    rows: np.ndarray
    query_starts: np.ndarray
    context_lengths: np.ndarray
    block_tables: np.ndarray
    longest_query: int
    longest_context: int

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields that are arrays, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def step_arrays(chunks: Sequence[Chunk], block_size: int, wanted: Sequence[int]) -> StepArrays:
    """Of a step of ``chunks``, with the logits after the last token of the ``wanted`` chunks (indices) and each draft.

    Raises ValueError for an empty step, an empty chunk, or one whose block table does not cover it.
    """
    lengths = [len(chunk.token_ids) + len(chunk.drafts) for chunk in chunks]
    contexts = [chunk.start + length for chunk, length in zip(chunks, lengths, strict=True)]
    blocks = [-(-context // block_size) for context in contexts]
    empty = any(not chunk.token_ids for chunk in chunks)
    if not chunks or empty or any(n > len(c.block_table) for n, c in zip(blocks, chunks, strict=True)):
        raise ValueError("a step needs chunks of at least one token with block tables that cover them")
    tables = np.zeros((len(chunks), max(blocks)), dtype=np.int32)
    for row, (chunk, count) in enumerate(zip(chunks, blocks, strict=True)):
        tables[row, :count] = chunk.block_table[:count]
    starts = np.zeros(len(chunks) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    sequence = np.repeat(np.arange(len(chunks)), lengths)
    first = np.fromiter((chunk.start for chunk in chunks), np.int64, len(chunks))
    positions = np.arange(starts[-1]) - starts[sequence] + first[sequence]
    rows = [int(starts[i + 1]) - 1 - back for i in wanted for back in range(len(chunks[i].drafts), -1, -1)]
    return StepArrays(
        tokens=np.fromiter(chain.from_iterable(part for c in chunks for part in (c.token_ids, c.drafts)), np.int64),
        positions=positions,
        slots=tables[sequence, positions // block_size].astype(np.int64) * block_size + positions % block_size,
        rows=np.array(rows, dtype=np.int64),
        query_starts=starts,
        context_lengths=np.array(contexts, dtype=np.int32),
        block_tables=tables,
        longest_query=max(lengths),
        longest_context=max(contexts),
    )


def padded(step: StepArrays, sequences: int, width: int, longest_context: int) -> StepArrays:
    """A step of one token per chunk, filled up to ``sequences`` chunks with tables of ``width`` blocks.

    What is added attends to one slot of block 0, is written nowhere, and its logits mean nothing. Rows are filled up
    to ``sequences``, too.
    """
    assert step.longest_query == 1, "only steps of one token per chunk are padded"
    more = sequences - len(step.tokens)

    def filled(array: np.ndarray, value: int, count: int = more) -> np.ndarray:
        return np.concatenate([array, np.full(count, value, dtype=array.dtype)])

    tables = np.zeros((sequences, width), dtype=np.int32)
    tables[: len(step.tokens), : step.block_tables.shape[1]] = step.block_tables
    return replace(
        step,
        tokens=filled(step.tokens, 0),
        positions=filled(step.positions, 0),
        slots=filled(step.slots, -1),
        rows=filled(step.rows, 0, sequences - len(step.rows)),
        query_starts=np.arange(sequences + 1, dtype=np.int32),
        context_lengths=filled(step.context_lengths, 1),
        block_tables=tables,
        longest_context=longest_context,
    )
