"""One scheduled step on the model; where it fails, the guilty chunk is found and only that one fails."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pagoda_inference import logs
from pagoda_inference.model.backend import Backend, Chunk, ChunkError, Result
from pagoda_inference.model.launched import Launched
from pagoda_inference.scheduling.step import ScheduledChunk, Step
from pagoda_inference.speculation.speculation import Speculation

logger = logging.getLogger(__name__)


class StepRunner:
    """Used from the engine's thread, like the backend. ``speculation`` gives the chunks their drafts."""

    def __init__(self, backend: Backend, speculation: Speculation | None = None) -> None:
        self._backend = backend
        self._speculation = speculation

    def begin(self, step: Step) -> Launched:
        """Queue the step on the device. ``wait`` of what this gives has the result of each of the step's chunks.

        Neither ever raises: a step that fails is computed again chunk by chunk. Where the backend is not asynchronous
        the step has been computed when this returns. Until ``wait`` the step's sequences must keep their blocks.
        """
        chunks = [_chunk(scheduled) for scheduled in step.chunks]
        launched = None
        try:
            if copies := step.copies:
                self._backend.copy_blocks(copies)
            if self._speculation is not None:
                self._speculation.draft(step, chunks)
            launched = self._launch(chunks)
        except Exception as error:
            logs.failure(logger, "step_failed", error, chunks=len(chunks))
        return Launched(lambda: self._finish(step, chunks, launched))

    def _finish(self, step: Step, chunks: Sequence[Chunk], launched: Launched | None) -> list[Result]:
        if launched is not None:
            try:
                results = launched.wait()
                if len(results) != len(chunks):
                    raise RuntimeError(f"the model answered {len(results)} of {len(chunks)} chunks")
                if self._speculation is not None:
                    self._speculation.learn(step, chunks, results)
                return results
            except Exception as error:
                logs.failure(logger, "step_failed", error, chunks=len(chunks))
        return [self._run_alone(chunk, step.copies) for chunk in chunks]

    def _launch(self, chunks: Sequence[Chunk]) -> Launched:
        if self._backend.asynchronous:
            return self._backend.launch(chunks)
        results = self._backend.run(chunks)
        return Launched(lambda: results)

    def _run_alone(self, chunk: Chunk, copies: Sequence[tuple[int, int]]) -> Result:
        """A chunk writes only its own positions, so that doing it again, with its copies, is harmless."""
        chunk.drafts = ()
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
