"""A model through the paged pool, beside itself with its own attention."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model import fusion, verification
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.kv_memory import KvMemory, KvStep
from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_kernels import Kernels
from tests.inference.tiny_models import VOCABULARY

PROMPTS = [[(seed * 31 + 7 * index * index) % VOCABULARY for index in range(n)] for seed, n in enumerate((45, 3, 30))]
NEXT = 5
"""Tokens decoded after each prompt."""
CPU = torch.device("cpu")


def backend_of(model: Any, kernels: Kernels, fuse: bool = True) -> TransformersBackend:
    layers = verification.layer_shapes(model, kernels)
    if fuse:
        fusion.fuse(model, kernels)
    memory = KvMemory(layers, total_blocks=80, block_size=4, dtype=model.dtype, device=CPU, kernels=kernels)
    return TransformersBackend(model, memory, context_length=256)


def own_logits(model: Any) -> list[torch.Tensor]:
    """By the model's eager attention: per prompt, logits [NEXT, V] after its last tokens."""
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        return [model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -NEXT:] for tokens in sequences()]


def sequences() -> list[list[int]]:
    return [prompt + [(index * 13 + len(prompt)) % VOCABULARY for index in range(NEXT - 1)] for prompt in PROMPTS]


def paged_logits(backend: TransformersBackend) -> list[torch.Tensor]:
    """The same in steps: prompts in chunks of 1 to 8 tokens beside each other's decodes, blocks in random order."""
    choose = random.Random(1)
    blocks = choose.sample(range(80), 60)
    tables = [blocks[20 * index : 20 * index + 20] for index in range(len(PROMPTS))]
    tokens = sequences()
    starts = [0] * len(PROMPTS)
    logits: list[list[torch.Tensor]] = [[] for _ in PROMPTS]
    while any(start < len(of) for start, of in zip(starts, tokens, strict=True)):
        chunks, owners = [], []
        for index, prompt in enumerate(PROMPTS):
            left = len(prompt) - starts[index]
            size = min(choose.randint(1, 8), left) if left > 0 else 1
            part = tokens[index][starts[index] : starts[index] + size]
            if part:
                chunks.append(Chunk(part, starts[index], tables[index], Sampler()))
                owners.append(index)
        rows = backend.logits(chunks, range(len(chunks)))
        for row, chunk, owner in zip(rows, chunks, owners, strict=True):
            starts[owner] += len(chunk.token_ids)
            if starts[owner] >= len(PROMPTS[owner]):
                logits[owner].append(row)
    return [torch.stack(of) for of in logits]


def change_calls(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Attention gets what ``change`` makes of the parameters it was called with.

    Layers that are one native call have their parameters inside; for a step without ``pools`` they take their own code.
    """
    attend = KvStep.attend

    def changed(self: KvStep, *tensors: Any, **parameters: Any) -> torch.Tensor:
        return attend(self, *tensors, **change(parameters))

    monkeypatch.setattr(KvStep, "attend", changed)
    monkeypatch.delattr(KvStep, "pools")


def greatest_difference(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    """Relative to the greatest logit; NaN where any of them is."""
    differences = [(a - b).abs().max() / b.abs().max() for a, b in zip(ours, theirs, strict=True)]
    return float(torch.stack(differences).max())
