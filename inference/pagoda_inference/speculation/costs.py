"""What a draft costs and what it saves, from how long steps take."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Backend, Chunk
from pagoda_inference.rates import Rates

MEASURED_DRAFTS, RUNS = 4, 3


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """A step takes about ``base_s + row_s * (sequences that get a token) + draft_s * (drafts that are checked)``
    seconds.

    guessing: rates of the draft model, which takes a step of its own for each further draft; None where drafts are had
    for nothing. The default takes everything for free.
    """

    base_s: float = 0.0
    row_s: float = 0.0
    draft_s: float = 0.0
    guessing: Rates | None = None

    def worth_s(self, rows: int) -> float:
        """What a token costs in a step with so many sequences: each bears its share of the step's fixed part."""
        return _of_each(rows, self.base_s, self.row_s)

    def cost_s(self, rows: int) -> float:
        """What a draft costs there, to make and to check."""
        guess_s = 0.0 if self.guessing is None else _of_each(rows, self.guessing.base_s, self.guessing.row_s)
        return self.draft_s + guess_s


def measure_costs(backend: Backend, rates: Rates, guessing: Rates | None = None) -> DraftCosts:
    """Check some drafts of one sequence, the best of a few runs, in blocks that nobody has yet."""
    tokens = min(MEASURED_DRAFTS + 1, backend.total_blocks * backend.block_size, backend.context_length - 1)
    blocks = list(range(-(-tokens // backend.block_size)))
    token = backend.vocabulary_size // 2
    drafts = max(1, tokens - 1)
    one = _seconds(backend, Chunk([token], 0, blocks, Sampler()))
    more = _seconds(backend, Chunk([token], 0, blocks, Sampler(), drafts=[token] * (tokens - 1)))
    return DraftCosts(rates.base_s, rates.row_s, max(0.0, more - one) / drafts, guessing)


def _seconds(backend: Backend, chunk: Chunk) -> float:
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        backend.run([chunk])
        taken.append(time.perf_counter() - begin)
    return min(taken)


def _of_each(rows: int, base_s: float, row_s: float) -> float:
    """Of a step's seconds, what falls to each of its sequences."""
    return base_s / max(1, rows) + row_s
