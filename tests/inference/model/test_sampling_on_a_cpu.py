"""A CPU with native kernels samples by them, and draws the tokens that plain torch draws."""

from __future__ import annotations

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler, sample
from pagoda_inference.model import verification
from pagoda_inference.model.backend import Chunk, ChunkError
from pagoda_inference.model.choosing import choose
from pagoda_inference.model.device_sampling import DeviceSampling
from pagoda_inference.model.kv_memory import KvMemory
from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_kernels import Kernels, layer_reference, torch_kernels
from tests.inference.tiny_models import VOCABULARY, tiny_model

CPU = torch.device("cpu")
SAMPLERS = [Sampler(), Sampler(0.8, 0.95, seed=5), Sampler(1.5, seed=6), Sampler(0.3, 0.5, seed=7), Sampler(1e300, 0.9)]


@pytest.fixture
def native(kernels: Kernels) -> Kernels:
    if kernels.native is None:
        pytest.skip("no C++ compiler")
    return kernels


def backend_of(kernels: Kernels) -> TransformersBackend:
    model = tiny_model("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[VOCABULARY - 1] = torch.nan
    memory = KvMemory(
        verification.layer_shapes(tiny_model("llama"), kernels),
        total_blocks=80, block_size=4, dtype=torch.float32, device=CPU, kernels=kernels,
    )  # fmt: skip
    return TransformersBackend(model, memory, context_length=256)


CHUNKS = [
    Chunk([5, 9, 2], 0, [0], SAMPLERS[1]),
    Chunk([7, 1], 0, [1]),
    Chunk([8, 8, 3, 4, 1], 0, [2, 3], SAMPLERS[2], [SAMPLERS[3], SAMPLERS[0], SAMPLERS[4]]),
    Chunk([6], 0, [4], SAMPLERS[3], drafts=[3, 4]),
    Chunk([VOCABULARY - 1], 0, [5], SAMPLERS[1]),
    Chunk([2, 3], 0, [6], candidates=4),
    Chunk([2, 3], 0, [7], SAMPLERS[0]),
]


def test_a_step_is_sampled_natively_and_as_plain_torch_does(native: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backend_of(native)
    wanted = [0, 2, 3, 4, 5, 6]
    chosen = choose(backend.logits(CHUNKS, wanted), [CHUNKS[index] for index in wanted])
    monkeypatch.setattr(layer_reference, "sample", None)
    results = backend.run(CHUNKS)
    assert isinstance(results[4], ChunkError)
    assert chosen[3] is None
    assert results[1] is None
    assert [results[index] for index in wanted if index != 4] == [result for result in chosen if result is not None]


def test_without_a_compiler_a_step_is_sampled_by_plain_torch() -> None:
    results = backend_of(torch_kernels()).run(CHUNKS)
    kinds = ["int", "NoneType", "tuple", "Accepted", "ChunkError", "Candidates", "int"]
    assert [type(result).__name__ for result in results] == kinds


def test_a_step_on_a_cpu_is_computed_when_it_is_launched(native: Kernels) -> None:
    assert not backend_of(native).asynchronous
    assert not backend_of(torch_kernels()).asynchronous


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_seed_gives_the_same_tokens_with_and_without_a_compiler(native: Kernels, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    assert native.native is not None
    draw = DeviceSampling(CPU, native.native.sample)
    logits = (torch.randn(100, 3000) * 3).to(dtype)
    logits[7, 3] = torch.nan
    samplers = [Sampler((row % 4) * 0.5, 1 - (row % 3) * 0.3, seed=row) for row in range(100)]
    tokens = sample(logits, samplers, range(100))
    assert draw(logits, samplers, range(100))() == tokens
    assert draw(logits[20:40], samplers[20:40], range(20, 40))() == tokens[20:40]
    assert tokens[7] is None
    assert draw(logits, samplers, range(1, 101))() != tokens
