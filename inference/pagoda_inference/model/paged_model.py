"""A model with its pool: the forward pass of a step's arrays, on this process's device."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from pagoda_inference.model.cuda_graphs import Buckets, DecodeGraphs
from pagoda_inference.model.kv_memory import KvMemory, KvStep
from pagoda_inference.model.paged_attention import NAME, PagedStep
from pagoda_inference.model.step_arrays import StepArrays

logger = logging.getLogger(__name__)


class PagedModel:
    """model: in eval mode on the pool's device; its attention is set to the paged one here."""

    def __init__(self, model: Any, memory: KvMemory) -> None:
        model.set_attn_implementation(NAME)
        self.model = model
        self.memory = memory
        self.bytes_per_block = memory.bytes_per_block
        self._graphs: DecodeGraphs | None = None
        self._called = model
        """``model``, or what torch.compile makes of it."""
        self._step: type[KvStep] = KvStep

    def capture_decodes(self, sequences: int, context_length: int) -> None:
        """Have decodes of up to so many sequences run as CUDA graphs. A warning, and none, where the model's code does
        not allow it."""
        buckets = Buckets.up_to(sequences, context_length, self.memory.block_size)
        try:
            self._graphs = DecodeGraphs(self.forward, buckets, self.memory.device)
        except RuntimeError as error:
            logger.warning("Decodes run without CUDA graphs, which is slower: %s", str(error).strip().split("\n")[0])

    def compile(self, backend: str = "inductor") -> None:
        """Have steps run through torch.compile, with attention left out of it. Graphs captured before stay."""
        self._called = torch.compile(self.model, dynamic=True, backend=backend)
        self._step = _UncompiledStep

    @torch.inference_mode()
    def logits(self, step: StepArrays) -> torch.Tensor:
        """Run one step; logits [R, V] of its rows. On a GPU good until the next step, and not there before the stream
        comes to them."""
        if self._graphs is not None and (logits := self._graphs.logits(step)) is not None:
            return logits
        return self.forward(step, self.memory.tensors(step))

    def forward(self, step: StepArrays, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        """Logits [R, V] of a step whose arrays are ``tensors`` already."""
        kv_step = self._step(self.memory, step, tensors)
        return forward(self._called, tensors["tokens"], tensors["positions"], tensors["rows"], kv_step)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.memory.copy_blocks(pairs)

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        return self.memory.read_blocks(ids)

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        self.memory.write_blocks(ids, payloads)


class _UncompiledStep(KvStep):
    """A step whose attention torch.compile does not look into: it launches kernels that are compiled already."""

    @torch.compiler.disable
    def attend(self, *tensors: Any, **parameters: Any) -> torch.Tensor:
        return super().attend(*tensors, **parameters)


def forward(
    model: Any, tokens: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, step: PagedStep
) -> torch.Tensor:
    """Logits [len(rows), V] of the ``rows`` of a token stream [T] at ``positions`` [T]; attention by ``step``."""
    own_class: type = type(getattr(model, "_orig_mod", model))
    keep = {"logits_to_keep": rows} if _can_choose_rows(own_class) else {}
    output = model(
        input_ids=tokens[None], position_ids=positions[None], use_cache=False, return_dict=True, paged_step=step, **keep
    )
    return output.logits[0] if keep else output.logits[0, rows]


@cache
def _can_choose_rows(model_class: type) -> bool:
    """Whether the model computes logits of chosen rows alone; else all are computed and most dropped."""
    return "logits_to_keep" in inspect.signature(model_class.forward).parameters  # type: ignore[attr-defined]
