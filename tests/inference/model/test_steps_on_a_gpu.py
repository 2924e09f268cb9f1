"""What a step goes through on its way to a GPU, on a CPU: arrays, padding to graphs' buckets, staging, sampling."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.decoding.sampling import sample as sample_here
from pagoda_inference.model import verification
from pagoda_inference.model.backend import Chunk, ChunkError
from pagoda_inference.model.cuda_graphs import Buckets, DecodeGraphs, batch_buckets, bucket_of, context_buckets
from pagoda_inference.model.device_sampling import DeviceSampling
from pagoda_inference.model.kv_memory import KvMemory
from pagoda_inference.model.paged_model import PagedModel
from pagoda_inference.model.staging import ALIGNMENT, Staging, layout
from pagoda_inference.model.step_arrays import padded, step_arrays
from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_kernels import Kernels, torch_kernels
from pagoda_kernels.layer_reference import sample
from tests.inference.model.paged_model import PROMPTS, greatest_difference, own_logits, paged_logits
from tests.inference.tiny_models import VOCABULARY, tiny_model

CPU = torch.device("cpu")
BLOCKS, BLOCK_SIZE = 80, 4


def memory_of(
    model: Any, kernels: Kernels | None = None, *, device: torch.device = CPU, keys_together: bool | None = False
) -> KvMemory:
    kernels = kernels or torch_kernels()
    return KvMemory(
        verification.layer_shapes(model, kernels),
        total_blocks=BLOCKS,
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
        device=device,
        kernels=kernels,
        keys_together=keys_together,
    )


@pytest.fixture
def paged() -> PagedModel:
    """A tiny model whose pool is full of somebody's numbers."""
    model = tiny_model("llama")
    memory = memory_of(model)
    torch.manual_seed(3)
    for pool in (*memory.keys, *memory.values):
        pool.copy_(torch.randn_like(pool))
    return PagedModel(model, memory)


def decodes(count: int, seed: int = 0) -> list[Chunk]:
    """Sequences of different lengths, one token each, in blocks of their own."""
    choose = random.Random(seed)
    blocks = choose.sample(range(1, BLOCKS), BLOCKS - 1)
    chunks = []
    for _ in range(count):
        start = choose.randrange(0, 12)
        table = [blocks.pop() for _ in range(start // BLOCK_SIZE + 1)]
        chunks.append(Chunk([choose.randrange(VOCABULARY)], start, table, Sampler()))
    return chunks


def test_buckets_hold_every_batch_and_context_and_none_is_twice_too_large() -> None:
    assert batch_buckets(64) == [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]
    for most in range(1, 130):
        buckets = batch_buckets(most)
        assert buckets == sorted(set(buckets))
        assert buckets[-1] == most
        for size in range(1, most + 1):
            bucket = bucket_of(size, buckets)
            assert bucket is not None
            assert size <= bucket <= max(2 * size - 1, size + 7)
        assert bucket_of(most + 1, buckets) is None
    assert context_buckets(2048) == [2048]
    assert context_buckets(131072) == [4096, 32768, 131072]
    assert context_buckets(4097) == [4096, 4097]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_padded_step_gives_the_same_logits_and_touches_nobodys_block(paged: PagedModel, count: int) -> None:
    memory = paged.memory
    step = step_arrays(decodes(count), BLOCK_SIZE, range(count))
    pools = [*memory.keys, *memory.values]
    before = [pool.clone() for pool in pools]
    expected = paged.logits(step)
    after = [pool.clone() for pool in pools]
    for pool, numbers in zip(pools, before, strict=True):
        pool.copy_(numbers)
    filled = padded(step, 8, 20, 80)
    logits = paged.logits(filled)
    assert logits.shape == (8, VOCABULARY)
    torch.testing.assert_close(logits[:count], expected)
    own = [int(slot) // BLOCK_SIZE for slot in step.slots]
    rivals = [block for block in range(BLOCKS) if block not in own]
    for pool, was, is_alone in zip(pools, before, after, strict=True):
        assert torch.equal(pool[rivals], was[rivals])
        assert not torch.equal(pool[own], was[own])
        torch.testing.assert_close(pool[own], is_alone[own])


def test_a_padding_row_that_had_a_slot_would_be_noticed(paged: PagedModel) -> None:
    filled = padded(step_arrays(decodes(3), BLOCK_SIZE, range(3)), 8, 20, 80)
    filled.slots[3:] = 0
    before = paged.memory.keys[0][0].clone()
    paged.logits(filled)
    assert not torch.equal(paged.memory.keys[0][0], before)


def test_a_step_goes_to_the_smallest_bucket_that_holds_it() -> None:
    buckets = Buckets([1, 2, 4, 8], [64, 256], BLOCK_SIZE)
    chunks = decodes(3)
    filled = buckets.filled(step_arrays(chunks, BLOCK_SIZE, [0, 2]))
    assert filled is not None
    assert filled.block_tables.shape == (4, 64 // BLOCK_SIZE)
    assert filled.longest_context == 64
    assert filled.rows.tolist() == [0, 2, 0, 0]
    assert filled.slots[3:].tolist() == [-1]
    assert filled.context_lengths[3:].tolist() == [1]
    chunks[1].start, chunks[1].block_table = 64, range(20)
    filled = buckets.filled(step_arrays(chunks, BLOCK_SIZE, range(3)))
    assert filled is not None
    assert filled.block_tables.shape == (4, 256 // BLOCK_SIZE)


def test_what_no_graph_can_run_is_left_alone() -> None:
    buckets = Buckets([1, 2, 4], [64], BLOCK_SIZE)
    assert buckets.filled(step_arrays(decodes(5), BLOCK_SIZE, range(5))) is None
    assert buckets.filled(step_arrays([Chunk([1, 2], 0, [3], Sampler())], BLOCK_SIZE, [0])) is None
    assert buckets.filled(step_arrays([Chunk([1], 0, [3], Sampler(), drafts=[5])], BLOCK_SIZE, [0])) is None
    assert buckets.filled(step_arrays([Chunk([1], 64, range(17), Sampler())], BLOCK_SIZE, [0])) is None
    assert buckets.filled(step_arrays([Chunk([1], 0, [3])], BLOCK_SIZE, [])) is None


def test_the_steps_that_graphs_are_captured_with_have_the_shapes_of_filled_ones(paged: PagedModel) -> None:
    buckets = Buckets([1, 2, 4], [64, 256], BLOCK_SIZE)
    captured = {(len(step.tokens), step.longest_context): layout(step.arrays())[0] for step in buckets.all()}
    assert len(captured) == 6
    for count in (1, 2, 3, 4):
        filled = buckets.filled(step_arrays(decodes(count), BLOCK_SIZE, range(count)))
        assert filled is not None
        assert layout(filled.arrays())[0] == captured[len(filled.tokens), filled.longest_context]
    before = [pool.clone() for pool in paged.memory.keys]
    for step in buckets.all():
        paged.logits(step)
    for pool, numbers in zip(paged.memory.keys, before, strict=True):
        assert torch.equal(pool, numbers)


def test_staged_arrays_arrive_and_lie_where_gpus_load_at_once() -> None:
    staging = Staging(CPU)
    for count in (1, 3, 50):
        step = step_arrays(decodes(min(count, 15)), BLOCK_SIZE, [0])
        tensors = staging.put(step.arrays())
        for name, array in step.arrays().items():
            assert np.array_equal(tensors[name].numpy(), array)
            assert tensors[name].numpy().dtype == array.dtype
            assert tensors[name].data_ptr() % ALIGNMENT == 0
    large = {"a": np.arange(100_000), "b": np.ones(7, dtype=np.float32)}
    tensors = staging.put(large)
    assert np.array_equal(tensors["a"].numpy(), large["a"])
    assert np.array_equal(tensors["b"].numpy(), large["b"])


def test_equal_shapes_have_equal_addresses_in_a_buffer_of_fixed_size() -> None:
    staging = Staging(CPU, 4096)
    first = {name: tensor.data_ptr() for name, tensor in staging.put({"a": np.arange(3), "b": np.arange(9)}).items()}
    staging.put({"a": np.arange(400)})
    again = {name: tensor.data_ptr() for name, tensor in staging.put({"a": np.arange(3), "b": np.arange(9)}).items()}
    assert first == again
    with pytest.raises(ValueError, match="do not fit"):
        staging.put({"a": np.arange(513)})


def test_keys_that_lie_together_give_the_models_own_logits() -> None:
    model = tiny_model("llama")
    expected = own_logits(model)
    memory = memory_of(model, keys_together=True)
    assert memory.keys[0].shape == memory_of(model).keys[0].shape
    assert memory.keys[0].stride(2) == 1
    backend = TransformersBackend(model, memory, context_length=256)
    assert greatest_difference(paged_logits(backend), expected) < 1e-4


def test_blocks_of_keys_that_lie_together_move_and_are_no_others_payloads() -> None:
    model = tiny_model("llama")
    memory = memory_of(model, keys_together=True)
    torch.manual_seed(3)
    for pool in (*memory.keys, *memory.values):
        pool.copy_(torch.randn_like(pool))
    first, second = memory.read_blocks([7, 2])
    assert len(first) == memory.bytes_per_block
    memory.write_blocks([5, 9], [second, first])
    memory.copy_blocks([(7, 11)])
    for pool in (*memory.keys, *memory.values):
        assert torch.equal(pool[9], pool[7])
        assert torch.equal(pool[5], pool[2])
        assert torch.equal(pool[11], pool[7])
    together = TransformersBackend(model, memory, context_length=256, fingerprint="weights")
    apart = TransformersBackend(model, memory_of(model), context_length=256, fingerprint="weights")
    assert together.fingerprint != apart.fingerprint


SAMPLERS = [Sampler(), Sampler(0.8, seed=5), Sampler(1.5, seed=6), Sampler(0.3, seed=7)]


def on_its_way(backend: TransformersBackend) -> TransformersBackend:
    """With the sampling of GPUs, by its reference."""
    backend._draw = DeviceSampling(CPU, sample)
    return backend


def test_a_launched_step_gives_what_a_run_gives() -> None:
    model = tiny_model("llama")
    at_once = TransformersBackend(model, memory_of(model), context_length=256)
    later = on_its_way(TransformersBackend(model, memory_of(model), context_length=256))
    chunks = [
        Chunk(PROMPTS[0], 0, range(12), SAMPLERS[2]),
        Chunk(PROMPTS[1], 0, range(12, 20)),
        Chunk(PROMPTS[2], 0, range(20, 30), SAMPLERS[1], [SAMPLERS[3], SAMPLERS[0]]),
        Chunk(PROMPTS[1], 0, range(30, 32), SAMPLERS[3], drafts=[3, 4]),
        Chunk(PROMPTS[1], 0, range(40, 42), candidates=4),
    ]
    launched = later.launch(chunks)
    results = launched.wait()
    assert results == at_once.run(chunks)
    assert [type(result).__name__ for result in results] == ["int", "NoneType", "tuple", "Accepted", "Candidates"]


def test_each_row_is_sampled_with_its_own_numbers() -> None:
    torch.manual_seed(1)
    logits = torch.randn(200, VOCABULARY) * 2
    choose = random.Random(2)
    samplers = [Sampler(choose.choice([0.0, 0.7, 1.3]), seed=row) for row in range(200)]
    positions = [choose.randrange(500) for _ in range(200)]
    drawn = DeviceSampling(CPU, sample)(logits, samplers, positions)()
    assert drawn == sample_here(logits, samplers, positions)
    assert drawn != DeviceSampling(CPU, sample)(logits, samplers, positions[::-1])()
    narrow = [Sampler(1.3, 1e-6 if row % 3 else 1.0, seed=row) for row in range(200)]
    wide = [Sampler(1.3, seed=row) for row in range(200)]
    expected = [
        int(logits[row].argmax()) if row % 3 else token
        for row, token in enumerate(sample_here(logits, wide, positions))
    ]
    assert DeviceSampling(CPU, sample)(logits, narrow, positions)() == expected


def test_a_row_without_numbers_fails_alone_after_a_launch() -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[VOCABULARY - 1] = torch.nan
    memory = memory_of(tiny_model("llama"))
    backend = on_its_way(TransformersBackend(model, memory, context_length=256))
    bad, good = backend.launch([Chunk([VOCABULARY - 1], 0, [1], Sampler()), Chunk([5], 0, [2], Sampler())]).wait()
    assert isinstance(bad, ChunkError)
    assert isinstance(good, int)
    assert math.isfinite(good)


@pytest.mark.slow
def test_a_compiled_model_gives_the_same_logits_and_attends_as_before(paged: PagedModel) -> None:
    steps = [
        step_arrays([Chunk(PROMPTS[0], 0, range(12), Sampler()), *decodes(2)], BLOCK_SIZE, [0, 2]),
        step_arrays([Chunk(PROMPTS[2], 0, range(12), Sampler()), *decodes(3)], BLOCK_SIZE, [0, 1]),
    ]
    expected = [paged.logits(step).clone() for step in steps]
    paged.compile(backend="eager")
    compiled: list[bool] = []
    attend = torch_kernels().paged_attention

    def noted(*tensors: Any, **parameters: Any) -> torch.Tensor:
        compiled.append(torch.compiler.is_compiling())
        return attend(*tensors, **parameters)

    paged.memory.kernels = replace(paged.memory.kernels, paged_attention=noted)
    for step, logits in zip(steps, expected, strict=True):
        torch.testing.assert_close(paged.logits(step), logits)
    assert compiled == [False] * 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")
def test_graphs_give_the_logits_of_eager_steps() -> None:
    from pagoda_kernels.kernels import gpu_kernels

    device = torch.device("cuda", 0)
    kernels = gpu_kernels(device)
    model = tiny_model("llama").to(device)
    paged = PagedModel(model, memory_of(model, kernels, device=device, keys_together=None))
    graphs = DecodeGraphs(paged.forward, Buckets.up_to(8, 256, BLOCK_SIZE), device)
    for count in (1, 3, 8):
        step = step_arrays(decodes(count, seed=count), BLOCK_SIZE, range(count))
        expected = paged.logits(step).clone()
        logits = graphs.logits(step)
        assert logits is not None
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
