"""A model in two parts, a process each, gives the tokens of the whole one, and ends when one of them does.

The first rank is this process; the other is begun as the engine begins it. CPUs, gloo, float32.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.errors import BackendLost, ModelLoadError
from pagoda_inference.model.loading import load_model
from pagoda_inference.model.tensor_parallel import ParallelModel
from tests.inference.model.model_folders import write_tokenizer
from tests.inference.tiny_models import Family, random_model
from tests.inference.tiny_tokenizers import tokenizer

BLOCK_SIZE = 4
OUTPUT = 12
VOCABULARY = len(tokenizer("byte_level"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose four query heads share two KV heads."""
    path = tmp_path_factory.mktemp("models") / "tiny-llama"
    model = random_model(Family("llama", {"vocab_size": VOCABULARY}).config())
    assert (model.config.num_attention_heads, model.config.num_key_value_heads) == (4, 2)
    model.save_pretrained(path)
    return write_tokenizer(path)


def load(folder: Path, home: Path, **settings: Any) -> Any:
    given = {"dtype": "float32", "device": "cpu", "block_size": BLOCK_SIZE, "pool_tokens": 400, **settings}
    backend, _, _ = load_model(str(folder), home=home, **given)
    return backend


@pytest.fixture(scope="module")
def whole(folder: Path, build_home: Path) -> Any:
    return load(folder, build_home)


@pytest.fixture(scope="module")
def parts(folder: Path, build_home: Path) -> Iterator[Any]:
    backend = load(folder, build_home, tensor_parallel=2)
    yield backend
    backend.close()


def answers(backend: Any, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """OUTPUT tokens of each prompt, in steps that mix chunks of prompts with decodes."""
    choose = random.Random(1)
    blocks = choose.sample(range(100), 100)
    tables = [[blocks.pop() for _ in range(20)] for _ in prompts]
    tokens = [list(prompt) for prompt in prompts]
    computed = [0] * len(prompts)
    mixed = False
    while any(len(of) < len(prompt) + OUTPUT for of, prompt in zip(tokens, prompts, strict=True)):
        chunks, owners = [], []
        for index, prompt in enumerate(prompts):
            left = len(tokens[index]) - computed[index]
            if len(tokens[index]) < len(prompt) + OUTPUT:
                size = min(choose.randint(1, 7), left)
                part = tokens[index][computed[index] : computed[index] + size]
                chunks.append(Chunk(part, computed[index], tables[index], Sampler() if size == left else None))
                owners.append(index)
        mixed |= len({len(chunk.token_ids) > 1 for chunk in chunks}) == 2
        for owner, chunk, result in zip(owners, chunks, backend.run(chunks), strict=True):
            computed[owner] += len(chunk.token_ids)
            if chunk.sampler is not None:
                tokens[owner].append(result)
    assert mixed
    return [of[len(prompt) :] for of, prompt in zip(tokens, prompts, strict=True)]


def prompts(seed: int, *lengths: int) -> list[list[int]]:
    choose = random.Random(seed)
    return [[choose.randrange(VOCABULARY) for _ in range(length)] for length in lengths]


def test_two_ranks_give_the_tokens_of_one(whole: Any, parts: Any) -> None:
    asked = prompts(0, 30, 3, 17)
    expected = answers(whole, asked)
    assert answers(parts, asked) == expected
    assert len({tuple(of) for of in expected}) == 3
    assert len({token for of in expected for token in of}) > 5


def test_each_rank_has_its_kv_heads_and_a_block_has_those_of_all(whole: Any, parts: Any) -> None:
    assert parts.bytes_per_block == whole.bytes_per_block
    assert parts.total_blocks == whole.total_blocks
    assert isinstance(parts._paged, ParallelModel)
    assert [pool.shape[1] for pool in parts._own.memory.keys] == [1, 1, 1]
    assert [pool.shape[1] for pool in whole._own.memory.keys] == [2, 2, 2]
    assert parts.fingerprint != whole.fingerprint


def test_blocks_of_all_ranks_are_copied_and_leave_and_come_back(parts: Any) -> None:
    [prompt] = prompts(4, 10)
    table, copied, brought = [3, 5, 7], [10, 11, 12], [20, 21, 22]
    [expected] = parts.run([Chunk(prompt, 0, table, Sampler())])
    parts.copy_blocks(list(zip(table, copied, strict=True)))
    payloads = parts.read_blocks(table)
    assert {len(payload) for payload in payloads} == {parts.bytes_per_block}
    parts.write_blocks(brought, payloads)
    [rival] = prompts(5, 12)
    parts.run([Chunk(rival, 0, table, Sampler())])
    for at in (copied, brought):
        assert parts.run([Chunk(prompt[-1:], len(prompt) - 1, at, Sampler())]) == [expected]
        assert parts.read_blocks(at)[:2] == payloads[:2]
    half = parts.bytes_per_block // 2
    parts.write_blocks(brought, [payload[:half] + bytes(half) for payload in payloads])
    assert parts.read_blocks(brought)[0] != payloads[0]
    with pytest.raises(ValueError, match="bytes"):
        parts.write_blocks([1], [b"short"])


def test_a_chunk_that_is_refused_leaves_the_ranks_together(whole: Any, parts: Any) -> None:
    with pytest.raises(ValueError, match="block tables"):
        parts.run([Chunk([1, 2, 3, 4, 5], 0, [3], Sampler())])
    asked = prompts(6, 9, 21)
    assert answers(parts, asked) == answers(whole, asked)


def test_what_cannot_be_shared_out_is_one_sentence(folder: Path, build_home: Path) -> None:
    with pytest.raises(ModelLoadError, match="cannot be shared out evenly among 3"):
        load(folder, build_home, tensor_parallel=3)
    with pytest.raises(ModelLoadError, match="cannot run on 'cuda:1'"):
        load(folder, build_home, tensor_parallel=2, device="cuda:1")


def test_a_rank_that_dies_ends_the_engine_in_its_step(parts: Any) -> None:
    """The last of these tests: nothing runs on these ranks any more. It dies while this one waits for it."""
    [rank] = parts._ranks._ranks
    rank.process.send_signal(signal.SIGSTOP)
    killing = threading.Timer(0.3, rank.process.kill)
    killing.start()
    with pytest.raises(BackendLost, match=r"Rank 1 of the model has ended \(exit code -9\)"):
        parts.run([Chunk([1, 2, 3], 0, [3], Sampler())])
    with pytest.raises(BackendLost, match="Rank 1"):
        parts.run([Chunk([1, 2, 3], 0, [3], Sampler())])
    with pytest.raises(RuntimeError, match="Rank 1"):
        parts.read_blocks([3])
