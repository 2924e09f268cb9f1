"""How long a loaded model takes, measured once before it serves: what pace and the cost of preemption start from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Backend, Chunk

PROMPT_TOKENS, ROWS, RUNS = 64, 16, 2


@dataclass(frozen=True, slots=True)
class Rates:
    """A step takes about ``base_s + row_s * (sequences that get a token) + token_s * (prompt tokens)`` seconds."""

    base_s: float
    row_s: float
    token_s: float

    @property
    def short_prompt_s(self) -> float:
        """Of a prompt of PROMPT_TOKENS that is computed alone, with its first token."""
        return self.base_s + self.row_s + self.token_s * PROMPT_TOKENS

    @property
    def prefill_tokens_per_s(self) -> float:
        """Of the same."""
        return PROMPT_TOKENS / max(self.short_prompt_s, 1e-9)


def measure_rates(backend: Backend) -> Rates:
    """Three kinds of steps, the best of a few runs each, in blocks that nobody has yet."""
    tokens = max(1, min(PROMPT_TOKENS, backend.total_blocks * backend.block_size, backend.context_length - 1))
    rows = max(1, min(ROWS, backend.total_blocks))
    token = backend.vocabulary_size // 2
    blocks = list(range(-(-tokens // backend.block_size)))
    one = _seconds(backend, [Chunk([token], 0, blocks, Sampler())])
    many = _seconds(backend, [Chunk([token], 0, [row], Sampler()) for row in range(rows)])
    prompt = _seconds(backend, [Chunk([token] * tokens, 0, blocks, Sampler())])
    row_s = max(0.0, many - one) / max(1, rows - 1)
    base_s = max(0.0, one - row_s)
    return Rates(base_s, row_s, max(0.0, prompt - one) / max(1, tokens - 1))


def _seconds(backend: Backend, chunks: Sequence[Chunk]) -> float:
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        backend.run(chunks)
        taken.append(time.perf_counter() - begin)
    return min(taken)
