"""A transformers model as a Backend: one flattened token stream for prefill chunks and decodes together."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any

import torch

from pagoda_inference.decoding.candidates import most_probable
from pagoda_inference.decoding.sampling import sample
from pagoda_inference.model.backend import Chunk, ChunkError, Result
from pagoda_inference.model.kv_memory import KvMemory
from pagoda_inference.model.paged_attention import NAME, PagedStep

_NOT_NUMBERS = "The model's output for this request was not a number (NaN or infinite): it cannot be continued."


class TransformersBackend:
    """Backend over a causal language model of transformers.

    model: in eval mode on its device; its attention is set to the paged one here. memory: the pool.
    """

    def __init__(self, model: Any, memory: KvMemory, *, context_length: int) -> None:
        model.set_attn_implementation(NAME)
        self._model = model
        self._memory = memory
        self.block_size = memory.block_size
        self.total_blocks = memory.total_blocks
        self.bytes_per_block = sum(pool[0].nbytes for pool in (*memory.keys, *memory.values))
        self.context_length = context_length
        self.vocabulary_size = int(model.get_input_embeddings().weight.shape[0])
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.device = str(memory.device)

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        wanted = [index for index, chunk in enumerate(chunks) if chunk.candidates or chunk.sampler is not None]
        logits = self.logits(chunks, wanted)
        results: list[Result] = [None] * len(chunks)
        for index, result in zip(wanted, choose(logits, [chunks[index] for index in wanted]), strict=True):
            results[index] = ChunkError(_NOT_NUMBERS) if result is None else result
        return results

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._memory.copy_blocks(pairs)

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        return self._memory.read_blocks(ids)

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        self._memory.write_blocks(ids, payloads)

    @torch.inference_mode()
    def logits(self, chunks: Sequence[Chunk], wanted: Sequence[int]) -> torch.Tensor:
        """Run one step; logits [len(wanted), V] after the last token of the ``wanted`` chunks (indices)."""
        step = self._memory.step(chunks)
        tokens = torch.tensor([token for chunk in chunks for token in chunk.token_ids], device=self._memory.device)
        rows = torch.as_tensor(step.last_rows[list(wanted)], dtype=torch.long, device=self._memory.device)
        return forward(self._model, tokens, step.positions, rows, step)


@torch.inference_mode()
def choose(logits: torch.Tensor, chunks: Sequence[Chunk]) -> list[Result]:
    """What each chunk asks for after its last token, from its row of ``logits`` [N, V]; None for a row without numbers.

    A chunk with forks takes one token for each sampler, all from the same row.
    """
    results: list[Result] = [None] * len(chunks)
    searching = [row for row, chunk in enumerate(chunks) if chunk.candidates]
    if searching:
        found = most_probable(_rows(logits, searching), [chunks[row].candidates for row in searching])
        for row, candidates in zip(searching, found, strict=True):
            results[row] = candidates
    samplers = [
        (row, sampler)
        for row, chunk in enumerate(chunks)
        if not chunk.candidates and chunk.sampler is not None
        for sampler in (chunk.sampler, *chunk.forks)
    ]
    if samplers:
        rows = [row for row, _ in samplers]
        positions = [chunks[row].start + len(chunks[row].token_ids) for row in rows]
        tokens = iter(sample(_rows(logits, rows), [sampler for _, sampler in samplers], positions))
        for row in dict.fromkeys(rows):
            chosen = tuple(islice(tokens, 1 + len(chunks[row].forks)))
            usable = tuple(token for token in chosen if token is not None)
            if len(usable) == len(chosen):
                results[row] = usable if chunks[row].forks else usable[0]
    return results


def _rows(logits: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """``logits[rows]``, without a copy where they are all of them."""
    return logits if list(rows) == list(range(len(logits))) else logits[list(rows)]


def forward(
    model: Any, tokens: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, step: PagedStep
) -> torch.Tensor:
    """Logits [len(rows), V] of the ``rows`` of a token stream [T] at ``positions`` [T]; attention by ``step``."""
    keep = {"logits_to_keep": rows} if _can_choose_rows(model.__class__) else {}
    output = model(
        input_ids=tokens[None], position_ids=positions[None], use_cache=False, return_dict=True, paged_step=step, **keep
    )
    return output.logits[0] if keep else output.logits[0, rows]


@cache
def _can_choose_rows(model_class: type) -> bool:
    """Whether the model computes logits of chosen rows alone; else all are computed and most dropped."""
    return "logits_to_keep" in inspect.signature(model_class.forward).parameters  # type: ignore[attr-defined]
