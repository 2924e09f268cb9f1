"""One prompt, several sequences: samples that fork at the prompt's end, beams that fork and end at every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as SequenceOf
from typing import cast

from pagoda_inference.kv.pool import Pool
from pagoda_inference.model.backend import Candidates, ChunkError, Result
from pagoda_inference.scheduling.sequence import Request, Sequence
from pagoda_inference.scheduling.workload import Workload


class Branching:
    """Forks and ends the sequences of running requests. A fork shares every block, partial ones too."""

    def __init__(self, workload: Workload) -> None:
        self._pool = workload.pool

    def take(
        self, sequence: Sequence, result: Result, produced: list[tuple[Sequence, int | Candidates | ChunkError]]
    ) -> None:
        """A token, the first tokens of several answers, or a beam's candidates."""
        request = sequence.request
        if isinstance(result, int):
            self._append(sequence, result)
            produced.append((sequence, result))
            return
        if isinstance(result, Candidates):
            produced.append((sequence, result))
            return
        first, *others = cast("tuple[int, ...]", result)
        answers = [sequence]
        for index in range(1, len(others) + 1):
            answers.append(self._fork(sequence, index))
        request.sequences = answers
        for answer, token in zip(answers, (first, *others), strict=True):
            self._append(answer, token)
            produced.append((answer, token))

    def branch(self, request: Request, picks: SequenceOf[tuple[int, int]]) -> None:
        """Go on with ``picks``: (index of a sequence, its next token). A sequence picked twice forks; one that is not
        picked ends.
        """
        beams = request.sequences
        picked = Counter(index for index, _ in picks)
        after: list[Sequence] = []
        for index, _ in picks:
            picked[index] -= 1
            after.append(self._fork(beams[index], 0) if picked[index] else beams[index])
        kept = {id(sequence) for sequence in after}
        for sequence in beams:
            if id(sequence) not in kept:
                self._free(sequence)
        request.sequences = after
        for place, (sequence, (_, token)) in enumerate(zip(after, picks, strict=True)):
            sequence.index = place
            self._append(sequence, token)
        request.decoding = True

    def end(self, sequence: Sequence) -> None:
        """One of several answers is done."""
        self._free(sequence)
        sequence.request.sequences.remove(sequence)

    def _free(self, sequence: Sequence) -> None:
        if sequence.table is not None:
            self._pool.free(sequence.table)
            sequence.table = None

    def _fork(self, sequence: Sequence, index: int) -> Sequence:
        assert sequence.table is not None
        request = sequence.request
        other = sequence.forked(index, request.samplers[index] if index < len(request.samplers) else sequence.sampler)
        other.table = self._pool.fork(sequence.table)
        other.chain = other.table.chain
        return other

    def _append(self, sequence: Sequence, token: int) -> None:
        sequence.tokens.append(token)
        sequence.request.ledger.produced += 1


def settle(pool: Pool, request: Request, sequence: Sequence) -> None:
    """``sequence`` has got further: fork what waited for it, and see whether all of the request is decoding."""
    if request.fork_at and sequence.computed >= request.fork_at:
        for other in request.sequences:
            if other is not sequence:
                _fork_behind(pool, sequence, other, request.fork_at)
        request.fork_at = 0
    if request.begun and not request.fork_at:
        request.decoding = all(other.uncomputed == 1 for other in request.sequences)


def _fork_behind(pool: Pool, first: Sequence, other: Sequence, tokens: int) -> None:
    """``other`` shares the full blocks of that many tokens; those behind them it has taken when it was admitted."""
    own = other.table
    assert first.table is not None
    assert own is not None
    other.table = pool.fork(first.table, tokens)
    pool.share(other.table, own.blocks)
    pool.free(own)
    other.chain = other.table.chain
    other.computed = tokens
