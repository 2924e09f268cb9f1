"""One scheduled step on the model; where it fails, the guilty chunk is found and only that one fails."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pagoda_inference import logs
from pagoda_inference.model.backend import Backend, Chunk, ChunkError, Result
from pagoda_inference.scheduling.step import ScheduledChunk, Step

logger = logging.getLogger(__name__)


class StepRunner:
    """Used from the engine's thread, like the backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def run(self, step: Step) -> list[Result]:
        """The result of each of the step's chunks. Never raises: a step that fails is computed again chunk by chunk."""
        chunks = [_chunk(scheduled) for scheduled in step.chunks]
        copies = step.copies
        try:
            if copies:
                self._backend.copy_blocks(copies)
            results = self._backend.run(chunks)
            if len(results) != len(chunks):
                raise RuntimeError(f"the model answered {len(results)} of {len(chunks)} chunks")
            return results
        except Exception as error:
            logs.failure(logger, "step_failed", error, chunks=len(chunks))
        return [self._run_alone(chunk, copies) for chunk in chunks]

    def _run_alone(self, chunk: Chunk, copies: Sequence[tuple[int, int]]) -> Result:
        """A chunk writes only its own positions, so that doing it again, with its copies, is harmless."""
        try:
            own = set(chunk.block_table)
            pairs = [pair for pair in copies if pair[1] in own]
            if pairs:
                self._backend.copy_blocks(pairs)
            [result] = self._backend.run([chunk])
            return result
        except Exception as error:
            failure = ChunkError(type(error).__name__)
            failure.__cause__ = error
            return failure


def _chunk(scheduled: ScheduledChunk) -> Chunk:
    sequence = scheduled.sequence
    assert sequence.table is not None, "scheduled without a block table"
    request = sequence.request
    chunk = Chunk(
        token_ids=sequence.tokens[scheduled.start : scheduled.start + scheduled.count],
        start=scheduled.start,
        block_table=sequence.table.blocks,
        sampler=sequence.sampler if scheduled.sampled else None,
    )
    if scheduled.sampled:
        if request.candidates:
            chunk.candidates = request.candidates
        elif not request.begun:
            chunk.forks = request.samplers[1:]
    return chunk
