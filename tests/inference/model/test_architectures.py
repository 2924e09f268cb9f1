"""A model gives its own logits through the paged pool, whatever the chunks and blocks, also on plain torch; and what
makes families differ (windows, softcaps, sinks) is noticed when it is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model import verification
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.errors import ModelLoadError
from pagoda_kernels import Kernels, cpu_kernels, torch_kernels
from tests.inference.model.paged_model import (
    PROMPTS,
    backend_of,
    change_calls,
    greatest_difference,
    own_logits,
    paged_logits,
)
from tests.inference.tiny_models import FAMILIES, VOCABULARY, tiny_model

ON_TORCH = (
    "gemma2", "gemma3", "gpt2", "gpt_neox", "gpt_oss", "llama", "llama_bias", "mistral", "mixtral", "olmo2", "opt",
    "phi3", "qwen2", "qwen3",
)  # fmt: skip
"""With native kernels all families are tested; what plain torch may do differently these show."""


@pytest.fixture(scope="session", params=["torch", "native"])
def kernels(request: pytest.FixtureRequest, build_home: Path) -> Kernels:
    return torch_kernels() if request.param == "torch" else cpu_kernels(build_home)


@pytest.mark.parametrize("family", ON_TORCH)
def test_logits_on_plain_torch_are_the_models_own(family: str) -> None:
    model = tiny_model(family)
    expected = own_logits(model)
    assert greatest_difference(paged_logits(backend_of(model, torch_kernels())), expected) < 1e-4


@pytest.mark.parametrize(
    ("family", "dropped"),
    [("llama", "scaling"), *((family, used) for family in ON_TORCH for used in sorted(FAMILIES[family].uses))],
)
def test_dropping_a_parameter_of_attention_is_noticed_on_plain_torch(
    family: str, dropped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(family)
    expected = own_logits(model)
    backend = backend_of(model, torch_kernels())
    change_calls(monkeypatch, lambda given: {**given, dropped: 1.0 if dropped == "scaling" else None})
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
