"""One model over several devices: each rank, a process with a device of its own, has a part of every layer.

The parts are transformers' own plan (``base_model_tp_plan``): columns of the first and rows of the second of two
matrix products, and with them whole KV heads, whose pool each rank has for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.paged_model import PagedModel
from pagoda_inference.model.ranks import Copy, Ranks, Run
from pagoda_inference.model.step_arrays import StepArrays


def device_of_ranks(name: str, count: int) -> str:
    """cuda, one GPU a rank, or cpu. Raises ModelLoadError for a device that ``count`` ranks cannot run on."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name not in ("auto", "cuda", "cpu") or (name == "cpu" and gpus):
        raise ModelLoadError(
            f"A tensor parallel model cannot run on {name!r} here: it takes the first GPUs of a machine that has some."
        )
    if gpus < count and (gpus or name == "cuda"):
        raise ModelLoadError(f"{count} devices were asked for (PAGODA_ENGINE_TENSOR_PARALLEL), and there are {gpus}.")
    return "cuda" if gpus else "cpu"


def check_divisible(config: Any, count: int) -> None:
    """Raises ModelLoadError where ``count`` ranks cannot have equal parts of a model."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    if not getattr(config, "base_model_tp_plan", None) and not getattr(text, "base_model_tp_plan", None):
        raise ModelLoadError(
            f"Models of type {config.model_type!r} have no tensor parallel plan in transformers: "
            "set PAGODA_ENGINE_TENSOR_PARALLEL to 1."
        )
    if heads % count or text.num_attention_heads % count:
        raise ModelLoadError(
            f"{text.num_attention_heads} query heads and {heads} KV heads cannot be shared out evenly among {count} "
            "devices: choose a PAGODA_ENGINE_TENSOR_PARALLEL that divides both."
        )


def local_bytes(model: torch.nn.Module) -> int:
    """Bytes of the weights that this rank has."""
    parts = [getattr(parameter, "to_local", lambda whole=parameter: whole)() for parameter in model.parameters()]
    return sum(part.nbytes for part in parts)


class ParallelModel:
    """A PagedModel over all ranks, from rank 0. A block's payload is the ranks' parts of it, one behind the other."""

    def __init__(self, own: PagedModel, ranks: Ranks) -> None:
        self.bytes_per_block = own.bytes_per_block * ranks.count
        self._own = own
        self._ranks = ranks

    def logits(self, step: StepArrays) -> torch.Tensor:
        self._ranks.tell(Run(step))
        with self._ranks.together():
            return self._own.logits(step)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._ranks.tell(Copy(list(pairs)))
        with self._ranks.together():
            self._own.copy_blocks(pairs)

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        parts = [self._own.read_blocks(ids), *self._ranks.read_blocks(ids)]
        return [bytearray().join(of_block) for of_block in zip(*parts, strict=True)]

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        size = self._own.bytes_per_block
        whole = [memoryview(payload).cast("B") for payload in payloads]
        parts = [[payload[rank * size : (rank + 1) * size] for payload in whole] for rank in range(self._ranks.count)]
        if any(len(payload) != self.bytes_per_block for payload in whole):
            raise ValueError(f"payloads of {[len(payload) for payload in whole]} bytes, not {self.bytes_per_block}")
        self._own.write_blocks(ids, parts[0])
        self._ranks.write_blocks(ids, parts[1:])
