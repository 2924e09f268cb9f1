"""A smaller model guesses for a larger one: two backends as one, over the same blocks and tables.

The draft model has as many blocks as the target, of as many tokens, and every block table means both pools. What
shares, copies, evicts, swaps or recomputes a block does so for both, so that both always hold KV of the same tokens.
Whatever the draft model does changes how many guesses are right, and never an answer. It draws its guesses with the
request's own random numbers: where the two distributions agree, so do the tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as SequenceOf

from pagoda_inference import logs
from pagoda_inference.model.backend import Accepted, Backend, Chunk, Result
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.launched import Launched
from pagoda_inference.model.tokenizer import TransformersTokenizer
from pagoda_inference.scheduling.sequence import Sequence
from pagoda_inference.speculation.drafter import MOST_FAILURES

logger = logging.getLogger(__name__)


class SpeculativeBackend:
    """A Backend, and the Drafter that belongs to it. Raises ModelLoadError where the two do not fit together.

    What it says of itself is the target's; a block's bytes are those of both, the target's first.
    """

    def __init__(self, target: Backend, draft: Backend) -> None:
        if (target.block_size, target.total_blocks) != (draft.block_size, draft.total_blocks):
            raise ModelLoadError(
                f"The draft model needs a KV pool of {target.total_blocks} blocks of {target.block_size} tokens like "
                f"the model's, not {draft.total_blocks} of {draft.block_size}."
            )
        if draft.context_length < target.context_length:
            raise ModelLoadError(
                f"The draft model's context of {draft.context_length} tokens is shorter than the model's of "
                f"{target.context_length}: choose another, or set PAGODA_ENGINE_CONTEXT_LENGTH."
            )
        self.target = target
        self.draft = draft
        self.block_size = target.block_size
        self.total_blocks = target.total_blocks
        self.bytes_per_block = target.bytes_per_block + draft.bytes_per_block
        self.context_length = target.context_length
        self.vocabulary_size = target.vocabulary_size
        self.dtype = target.dtype
        self.device = target.device
        self.fingerprint = f"{target.fingerprint} drafts {draft.fingerprint}"
        self.asynchronous = target.asynchronous
        self._failures = 0

    # --- the backend --------------------------------------------------------------------------------------------------

    def run(self, chunks: SequenceOf[Chunk]) -> list[Result]:
        return self.launch(chunks).wait()

    def launch(self, chunks: SequenceOf[Chunk]) -> Launched:
        """The target's step; when it is there the draft model's of what it has not computed: then both have the same
        tokens.
        """
        launched = self.target.launch(chunks)

        def finish() -> list[Result]:
            results = launched.wait()
            missing = [_unwritten(chunk, result) for chunk, result in zip(chunks, results, strict=True)]
            self._run_draft([chunk for chunk in missing if chunk is not None])
            return results

        return Launched(finish)

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        self.target.copy_blocks(pairs)
        self.draft.copy_blocks(pairs)

    def read_blocks(self, ids: SequenceOf[int]) -> list[bytearray]:
        both = zip(self.target.read_blocks(ids), self.draft.read_blocks(ids), strict=True)
        return [first + second for first, second in both]

    def write_blocks(self, ids: SequenceOf[int], payloads: SequenceOf[bytes | bytearray | memoryview]) -> None:
        size = self.target.bytes_per_block
        if any(len(payload) != self.bytes_per_block for payload in payloads):
            raise ValueError(f"a block of both models has {self.bytes_per_block} bytes")
        views = [memoryview(payload) for payload in payloads]
        self.target.write_blocks(ids, [view[:size] for view in views])
        self.draft.write_blocks(ids, [view[size:] for view in views])

    def close(self) -> None:
        self.target.close()
        self.draft.close()

    # --- the drafter --------------------------------------------------------------------------------------------------

    def propose(
        self, sequences: SequenceOf[Sequence], chunks: SequenceOf[Chunk], most: SequenceOf[int]
    ) -> list[SequenceOf[int]]:
        """One step of the draft model for each further draft, all sequences together."""
        drafts: list[list[int]] = [[] for _ in chunks]
        going = list(range(len(chunks)))
        for depth in range(max(most, default=0)):
            going = [index for index in going if len(drafts[index]) == depth < most[index]]
            step = [self._next(chunks[index], drafts[index]) for index in going]
            results = self._run_draft(step)
            for index, result in zip(going, results, strict=True):
                if isinstance(result, int) and result < self.vocabulary_size:
                    drafts[index].append(result)
        return list(drafts)

    def _next(self, chunk: Chunk, drafts: list[int]) -> Chunk:
        newest = drafts[-1] if drafts else chunk.token_ids[-1]
        start = chunk.start + len(chunk.token_ids) - 1 + len(drafts)
        return Chunk([newest], start, chunk.block_table, chunk.sampler)

    def _run_draft(self, chunks: SequenceOf[Chunk]) -> SequenceOf[Result]:
        """A failure costs guesses and nothing else."""
        if not chunks or self._failures >= MOST_FAILURES:
            return [None] * len(chunks)
        try:
            results = self.draft.run(chunks)
            if len(results) != len(chunks):
                raise RuntimeError(f"the draft model answered {len(results)} of {len(chunks)} chunks")
        except Exception as error:
            self._failures += 1
            logs.failure(logger, "drafting_failed", error, off=self._failures >= MOST_FAILURES)
            return [None] * len(chunks)
        self._failures = 0
        return results


def check_same_tokens(
    target: TransformersTokenizer, draft: TransformersTokenizer, target_id: str, draft_id: str
) -> None:
    """Raises ModelLoadError where the ids of the draft model's guesses would be other tokens to the target."""
    own, other = target.vocabulary(), draft.vocabulary()
    if own != other:
        different = sum(own.get(token) != id for token, id in other.items()) + len(own.keys() - other.keys())
        raise ModelLoadError(
            f"The draft model {draft_id} has another tokenizer than {target_id} ({different} tokens differ): its "
            "guesses would mean something else."
        )


def _unwritten(chunk: Chunk, result: Result) -> Chunk | None:
    """Of what a chunk keeps, the tokens that the draft model has not computed while it guessed.

    That is all of a chunk without drafts. Of one with drafts it is the last draft, where that was right: nothing was
    guessed behind it.
    """
    if not chunk.drafts:
        return Chunk(chunk.token_ids, chunk.start, chunk.block_table)
    if isinstance(result, Accepted) and len(result.tokens) > len(chunk.drafts):
        last = chunk.start + len(chunk.token_ids) + len(chunk.drafts) - 1
        return Chunk([chunk.drafts[-1]], last, chunk.block_table)
    return None
