"""What the engine needs from a model: run one step's chunks, copy blocks. Everything else is the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pagoda_inference.decoding.sampling import Sampler

if TYPE_CHECKING:
    from pagoda_inference.model.launched import Launched


@dataclass(slots=True)
class Chunk:
    """The part of one sequence that a step computes: a slice of its prompt, or its newest token.

    token_ids: T >= 1 tokens whose KV is computed and written in this step.
    start: position of the first of them; positions 0..start-1 are in the pool already.
    block_table: physical block of each logical block, covering at least ``start + T`` tokens.
    sampler: how to choose the next token after the last of ``token_ids``; None when the chunk ends before the known
        end of the sequence, so that only its KV is wanted.
    forks: further samplers that choose a token each after the same last token: the prompt is done, and several answers
        begin. The result is a tuple of 1 + len(forks) tokens then.
    candidates: above 0 for beam search: the result is ``Candidates``, and the samplers are not used.
    drafts: tokens that may come next, guessed: their KV is written behind that of ``token_ids``, and a token is chosen
        after each. The result is ``Accepted`` then. The block table covers them too, and only this sequence has the
        blocks that they are written to.
    """

    token_ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    sampler: Sampler | None = None
    forks: Sequence[Sampler] = ()
    candidates: int = 0
    drafts: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The next tokens of a sequence, 1 to len(drafts) + 1 of them: those that it has without drafts, too."""

    tokens: tuple[int, ...]


def accept(drafts: Sequence[int], chosen: Sequence[int | None]) -> Accepted | None:
    """Of the tokens ``chosen`` after the chunk and after each draft, those whose drafts before them were all right.

    A draft is right where it is the token that was chosen in its place: whatever is drafted, the tokens are those that
    would have been chosen one by one. None where the first could not be chosen; a later one that could not ends them.
    """
    tokens: list[int] = []
    for place, token in enumerate(chosen):
        if token is None:
            break
        tokens.append(token)
        if place == len(drafts) or drafts[place] != token:
            break
    return Accepted(tuple(tokens)) if tokens else None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The most probable next tokens in order of probability (ties: the lower id first), with their log
    probabilities."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class ChunkError(Exception):
    """One chunk of a step failed (for example: logits that are not numbers). The step's other chunks are good."""


Result = int | tuple[int, ...] | Accepted | Candidates | ChunkError | None
"""What a step gives for one chunk: see ``Backend.run``."""


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
    fingerprint: str
    """Names the weights and the dtype: KV of backends with different fingerprints is never mixed."""
    asynchronous: bool
    """Whether ``launch`` returns before the step is computed, so that it pays to do something else then."""

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        """Compute one step for all chunks together.

        Returns, per chunk: the next token id (or what ``forks``, ``candidates`` and ``drafts`` ask for instead), None
        where no sampler was given, or a ChunkError for that chunk alone.
        An exception means that the whole step failed and nothing was sampled.
        """
        ...

    def launch(self, chunks: Sequence[Chunk]) -> Launched:
        """Begin what ``run`` does whole; raises what it raises. The chunks are read before this returns.

        Where it is not ``asynchronous`` the step has been computed then.
        """
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (source, destination) within the pool, before the next ``run`` (copy-on-write)."""
        ...

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        """Copies of whole blocks, ``bytes_per_block`` each. From any thread, for blocks that no step is writing."""
        ...

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        """Put such copies back. From any thread, for blocks that no step reads or writes."""
        ...

    def close(self) -> None:
        """End what the model runs on outside this thread, if anything. Nothing is asked of it any more."""
        ...
