"""Decode steps as CUDA graphs: what launching hundreds of kernels one by one takes of a step is paid once, at start.

A graph repeats the same launches on the same addresses. So there is one for each bucket of batch sizes and of context
lengths: a step is filled up to the smallest bucket that holds it, its arrays are copied to where the graph reads them,
and the graph is replayed. Contexts have buckets because attention is cut up by the longest that it may meet.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pagoda_inference.model.staging import Staging, layout
from pagoda_inference.model.step_arrays import StepArrays, padded

logger = logging.getLogger(__name__)

Forward = Callable[[StepArrays, dict[str, torch.Tensor]], torch.Tensor]
"""Logits [R, V] of a step whose arrays are on the device."""

_SMALL_BATCHES = (1, 2, 4, 8)
_BATCH_STEP = 8
_SHORTEST_CONTEXT, _CONTEXT_FACTOR = 4096, 8
_WARM_UP_RUNS = 2


def batch_buckets(most: int) -> list[int]:
    """1, 2, 4, 8, 16, 24, 32 and so on, up to ``most``, which is always the last."""
    buckets = [size for size in (*_SMALL_BATCHES, *range(2 * _BATCH_STEP, most, _BATCH_STEP)) if size < most]
    return [*buckets, most]


def context_buckets(most: int) -> list[int]:
    """Tokens of the longest context: 4096 and eight times as many each, up to ``most``, which is always the last."""
    buckets = []
    bound = _SHORTEST_CONTEXT
    while bound < most:
        buckets.append(bound)
        bound *= _CONTEXT_FACTOR
    return [*buckets, most]


def bucket_of(number: int, buckets: Sequence[int]) -> int | None:
    """The smallest of the ascending ``buckets`` that is not below ``number``; None where there is none."""
    return next((bucket for bucket in buckets if bucket >= number), None)


@dataclass(frozen=True, slots=True)
class Buckets:
    """What graphs there are: for steps of up to so many sequences, and contexts of up to so many tokens."""

    batches: list[int]
    contexts: list[int]
    block_size: int

    @classmethod
    def up_to(cls, sequences: int, context_length: int, block_size: int) -> Buckets:
        return cls(batch_buckets(sequences), context_buckets(context_length), block_size)

    def filled(self, step: StepArrays) -> StepArrays | None:
        """``step`` filled up to the smallest bucket that holds it; None for one that no graph can run: with more than
        one token of a chunk, or too large."""
        if step.longest_query != 1 or not len(step.rows):
            return None
        batch = bucket_of(len(step.tokens), self.batches)
        context = bucket_of(step.longest_context, self.contexts)
        if batch is None or context is None:
            return None
        return self._padded(step, batch, context)

    def all(self) -> list[StepArrays]:
        """A step of each bucket in which nothing is anybody's, the largest first."""
        nobody = StepArrays(
            tokens=np.zeros(0, np.int64),
            positions=np.zeros(0, np.int64),
            slots=np.zeros(0, np.int64),
            rows=np.zeros(0, np.int64),
            query_starts=np.zeros(1, np.int32),
            context_lengths=np.zeros(0, np.int32),
            block_tables=np.zeros((0, 0), np.int32),
            longest_query=1,
            longest_context=1,
        )
        pairs = [(batch, context) for context in self.contexts for batch in self.batches]
        return [self._padded(nobody, batch, context) for batch, context in reversed(pairs)]

    def _padded(self, step: StepArrays, batch: int, context: int) -> StepArrays:
        return padded(step, batch, -(-context // self.block_size), context)


class DecodeGraphs:
    """The graphs of a model on a GPU, captured here. ``forward`` must launch nothing but what depends on shapes.

    Raises what capturing raises: a model whose code waits for the device cannot be captured.
    """

    def __init__(self, forward: Forward, buckets: Buckets, device: torch.device) -> None:
        self._forward = forward
        self._buckets = buckets
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        steps = buckets.all()
        self._staging = Staging(device, max(layout(step.arrays())[1] for step in steps))
        begin, free = time.monotonic(), torch.cuda.mem_get_info(device)[0]
        self._logits = self._capture(steps, device)
        taken = (free - torch.cuda.mem_get_info(device)[0]) / 2**20
        seconds = time.monotonic() - begin
        logger.info(
            "%d CUDA graphs of decodes captured in %.1f s, %.0f MiB: batches %s, contexts up to %s",
            len(steps), seconds, taken, buckets.batches, buckets.contexts,
        )  # fmt: skip

    @torch.inference_mode()
    def logits(self, step: StepArrays) -> torch.Tensor | None:
        """Logits [R, V] of the step's rows, good until the next step; None where no graph can run it."""
        filled = self._buckets.filled(step)
        if filled is None:
            return None
        self._staging.put(filled.arrays())
        self._graphs[_key(filled)].replay()
        return self._logits[: len(step.rows)]

    @torch.inference_mode()
    def _capture(self, steps: Sequence[StepArrays], device: torch.device) -> torch.Tensor:
        """Capture all; they share memory, as they never run at once. Gives where they leave their logits [R, V]."""
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        pool = torch.cuda.graph_pool_handle()
        gc.collect()
        with torch.cuda.stream(stream):
            logits = torch.empty_like(self._forward(steps[0], self._staging.put(steps[0].arrays())))
            for step in steps:
                tensors = self._staging.put(step.arrays())
                for _ in range(_WARM_UP_RUNS):  # kernels are compiled and libraries make their workspaces here
                    self._forward(step, tensors)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                    logits[: len(step.rows)].copy_(self._forward(step, tensors))
                self._graphs[_key(step)] = graph
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.empty_cache()  # of the warm-up runs
        return logits


def _key(step: StepArrays) -> tuple[int, int]:
    return len(step.tokens), step.longest_context
