"""Many families give their own logits through the paged pool, whatever the chunks and blocks; and what makes them
differ (windows, softcaps, sinks) is noticed when it is dropped."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model import fusion, verification
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.kv_memory import KvMemory, KvStep
from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_kernels import Kernels, cpu_kernels, torch_kernels
from tests.inference.tiny_models import CONFIGS, VOCABULARY, tiny_model

PROMPTS = [[(seed * 31 + 7 * index * index) % VOCABULARY for index in range(n)] for seed, n in enumerate((45, 3, 30))]
NEXT = 5
"""Tokens decoded after each prompt."""
CPU = torch.device("cpu")


@pytest.fixture(scope="session", params=["torch", "native"])
def kernels(request: pytest.FixtureRequest, build_home: Path) -> Kernels:
    return torch_kernels() if request.param == "torch" else cpu_kernels(build_home)


def backend_of(model: Any, kernels: Kernels, fuse: bool = True) -> TransformersBackend:
    layers = verification.layer_shapes(model, kernels)
    if fuse:
        fusion.fuse(model, kernels)
    memory = KvMemory(layers, total_blocks=80, block_size=4, dtype=torch.float32, device=CPU, kernels=kernels)
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


def greatest_difference(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("family", CONFIGS)
def test_logits_are_the_models_own(family: str, kernels: Kernels) -> None:
    model = tiny_model(family)
    expected = own_logits(model)
    assert greatest_difference(paged_logits(backend_of(model, kernels)), expected) < 1e-4


@pytest.mark.parametrize(
    ("family", "dropped"),
    [
        ("mistral", "sliding_window"),
        ("gemma2", "sliding_window"),
        ("gemma2", "softcap"),
        ("gemma3", "sliding_window"),
        ("gpt_oss", "sliding_window"),
        ("gpt_oss", "sinks"),
        ("llama", "scaling"),
    ],
)
def test_dropping_a_parameter_of_attention_is_noticed(
    family: str, dropped: str, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(family)
    expected = own_logits(model)
    backend = backend_of(model, kernels)
    attend = KvStep.attend

    def without(self: KvStep, *tensors: Any, **parameters: Any) -> torch.Tensor:
        return attend(self, *tensors, **{**parameters, dropped: 1.0 if dropped == "scaling" else None})

    monkeypatch.setattr(KvStep, "attend", without)
    assert greatest_difference(paged_logits(backend), expected) > 1e-3


def test_a_foreign_block_in_a_table_is_noticed(kernels: Kernels) -> None:
    model = tiny_model("llama")
    backend = backend_of(model, kernels)
    backend.run([Chunk(PROMPTS[0], 0, list(range(12)))])
    backend.run([Chunk(PROMPTS[2], 0, list(range(20, 32)))])
    own = backend.logits([Chunk([5], 45, list(range(12)), Sampler())], [0])
    foreign = backend.logits([Chunk([5], 45, [*range(5), 25, *range(6, 12)], Sampler())], [0])
    assert float((own - foreign).abs().max()) > 1e-3


def test_copied_blocks_give_the_same_logits(kernels: Kernels) -> None:
    backend = backend_of(tiny_model("llama"), kernels)
    backend.run([Chunk(PROMPTS[0], 0, list(range(12)))])
    backend.copy_blocks([(11, 50), (3, 51)])
    table = [*range(3), 51, *range(4, 11), 50]
    own = backend.logits([Chunk([5], 45, list(range(12)), Sampler())], [0])
    assert torch.equal(own, backend.logits([Chunk([5], 45, table, Sampler())], [0]))


def test_with_native_kernels_a_result_is_the_same_bits_in_any_batch_and_chunking(build_home: Path) -> None:
    kernels = cpu_kernels(build_home)
    if kernels.native is None:
        pytest.skip("no C++ compiler")
    backend = backend_of(tiny_model("llama"), kernels)
    table = list(range(12))
    alone = backend.logits([Chunk(PROMPTS[0], 0, table, Sampler())], [0])
    rivals = [Chunk(PROMPTS[1], 0, [20], Sampler()), Chunk(PROMPTS[2], 0, list(range(30, 38)), Sampler())]
    backend.run([Chunk(PROMPTS[0][:20], 0, table), *rivals])
    chunked = backend.logits([rivals[1], Chunk(PROMPTS[0][20:], 20, table, Sampler()), rivals[0]], [1])
    assert torch.equal(alone, chunked)


def test_a_chunk_whose_logits_are_not_numbers_fails_alone(kernels: Kernels) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[VOCABULARY - 1] = torch.nan
    backend = backend_of(model, kernels, fuse=False)
    good, bad, unwanted = backend.run(
        [
            Chunk([1, 2, 3], 0, [0], Sampler()),
            Chunk([1, VOCABULARY - 1], 0, [1], Sampler()),
            Chunk([4, 5], 0, [2]),
        ]
    )
    assert isinstance(good, int)
    assert "not a number" in str(bad)
    assert unwanted is None


def test_verification_accepts_a_supported_model_and_refuses_a_wrong_one(kernels: Kernels) -> None:
    model = tiny_model("llama")
    reference = verification.reference_logits(model)
    backend = backend_of(model, kernels)
    backend.total_blocks = 80
    verification.verify(backend, reference)
    with pytest.raises(ModelLoadError, match="not supported"):
        verification.verify(backend, reference + torch.randn_like(reference) * reference.std())
