"""A transformers model as a Backend: one flattened token stream for prefill chunks and decodes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pagoda_inference.model.backend import Chunk, ChunkError, Result
from pagoda_inference.model.choosing import Draw, begin_to_choose, choose
from pagoda_inference.model.device_sampling import DeviceSampling
from pagoda_inference.model.kv_memory import KvMemory
from pagoda_inference.model.launched import Launched
from pagoda_inference.model.paged_model import PagedModel
from pagoda_inference.model.ranks import Ranks
from pagoda_inference.model.step_arrays import step_arrays
from pagoda_inference.model.tensor_parallel import ParallelModel

_NOT_NUMBERS = "The model's output for this request was not a number (NaN or infinite): it cannot be continued."


class TransformersBackend:
    """Backend over a causal language model of transformers.

    model: in eval mode on its device; its attention is set to the paged one here. memory: the pool. fingerprint: of the
    weights, see ``Backend``. ranks: those that have the other parts of the model, where this is but one.
    """

    def __init__(
        self,
        model: Any,
        memory: KvMemory,
        *,
        context_length: int,
        fingerprint: str = "",
        ranks: Ranks | None = None,
    ) -> None:
        self._model = model
        self._own = PagedModel(model, memory)
        self._paged: PagedModel | ParallelModel = self._own if ranks is None else ParallelModel(self._own, ranks)
        self._ranks = ranks
        self._draw = _device_draw(memory, None if ranks is None else ranks.check)
        self.block_size = memory.block_size
        self.total_blocks = memory.total_blocks
        self.bytes_per_block = self._paged.bytes_per_block
        self.context_length = context_length
        self.vocabulary_size = int(model.get_input_embeddings().weight.shape[0])
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.device = str(memory.device)
        self.asynchronous = memory.kernels.layers is not None
        """Whether ``launch`` returns before the step is computed, so that it pays to do something else then."""
        layout = " transposed" if memory.keys_together else ""
        parts = "" if ranks is None else f" in {ranks.count} parts"
        self.fingerprint = f"{fingerprint} {self.dtype}{layout}{parts}"

    def capture_decodes(self, sequences: int) -> None:
        """Have decodes of up to so many sequences run as CUDA graphs, on a GPU."""
        self._own.capture_decodes(sequences, self.context_length)

    def compile(self) -> None:
        """Have the steps that are no graphs run through torch.compile."""
        self._own.compile()

    def close(self) -> None:
        """End the other ranks, if there are any. Without it they end with this process."""
        if self._ranks is not None:
            self._ranks.close()

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        return self.launch(chunks).wait()

    def launch(self, chunks: Sequence[Chunk]) -> Launched:
        """Begin a step. On a GPU this returns when it is queued; elsewhere it has been computed then."""
        wanted = [index for index, chunk in enumerate(chunks) if chunk.candidates or chunk.sampler is not None]
        logits = self.logits(chunks, wanted)
        asked = [chunks[index] for index in wanted]
        if self._draw is None:
            chosen = choose(logits, asked)
            return Launched(lambda: _spread(chosen, wanted, len(chunks)))
        finish = begin_to_choose(logits, asked, self._draw)
        return Launched(lambda: _spread(finish(), wanted, len(chunks)))

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._paged.copy_blocks(pairs)

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        return self._paged.read_blocks(ids)

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        self._paged.write_blocks(ids, payloads)

    def logits(self, chunks: Sequence[Chunk], wanted: Sequence[int]) -> torch.Tensor:
        """Run one step; logits [rows, V] after the last token of the ``wanted`` chunks (indices) and each draft."""
        return self._paged.logits(step_arrays(chunks, self.block_size, wanted))


def _device_draw(memory: KvMemory, check: Callable[[], None] | None) -> Draw | None:
    """Sampling by the device's kernels, where it has any."""
    kernels = memory.kernels
    if kernels.layers is not None:
        return DeviceSampling(memory.device, kernels.layers.sample, check)
    if kernels.native is not None:
        return DeviceSampling(memory.device, kernels.native.sample, check)
    return None


def _spread(chosen: Sequence[Result], wanted: Sequence[int], count: int) -> list[Result]:
    """What was chosen for the ``wanted`` chunks, in its place among the results of all ``count``."""
    results: list[Result] = [None] * count
    for index, result in zip(wanted, chosen, strict=True):
        results[index] = ChunkError(_NOT_NUMBERS) if result is None else result
    return results
