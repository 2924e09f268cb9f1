"""The KV-echo model: the same answer however it was computed, and another one for any wrong block."""

from __future__ import annotations

import random
import time

import pytest

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.echo import EchoBackend, EchoTokenizer
from pagoda_inference.protocol import ChatMessage

TOKENIZER = EchoTokenizer()
PROMPT = TOKENIZER.encode_chat([ChatMessage("system", "Be kind."), ChatMessage("user", "안녕 🙂 how are you?")])
RIVAL = TOKENIZER.encode_chat([ChatMessage("user", "A rival asks something else.")])
GREEDY = Sampler()


def answer(
    backend: EchoBackend, table: list[int], prompt: list[int], chunk: int, sampler: Sampler = GREEDY
) -> list[int]:
    start, output = 0, []
    while start < len(prompt):
        part = prompt[start : start + chunk]
        last = start + len(part) == len(prompt)
        [token] = backend.run([Chunk(part, start, table, sampler if last else None)])
        assert (token is None) != last
        start += len(part)
    while True:
        assert isinstance(token, int)
        output.append(token)
        if token in TOKENIZER.eos_token_ids:
            return output
        [token] = backend.run([Chunk([token], start, table, sampler)])
        start += 1


@pytest.mark.parametrize("chunk", [1, 7, 16, 1000])
@pytest.mark.parametrize("block_size", [1, 16])
def test_the_answer_does_not_depend_on_chunks_blocks_or_a_rival(chunk: int, block_size: int) -> None:
    expected = answer(EchoBackend(), list(range(64)), PROMPT, 1000)
    backend = EchoBackend(block_size=block_size, pool_tokens=8192)
    tables = random.Random(chunk).sample(range(backend.total_blocks), 2 * (512 // block_size))
    answer(backend, tables[512 // block_size :], RIVAL, 5)
    assert answer(backend, tables[: 512 // block_size], PROMPT, chunk) == expected


def test_a_rivals_block_in_the_table_changes_the_next_token() -> None:
    backend = EchoBackend(block_size=4)
    backend.run([Chunk(PROMPT, 0, list(range(32)))])
    backend.run([Chunk(RIVAL, 0, list(range(32, 64)))])
    seen = set()
    for wrong in range(8):
        table = list(range(32))
        table[wrong] = 32 + wrong
        seen.add(_digest_of_next(backend, table))
    assert _digest_of_next(backend, list(range(32))) not in seen


def _digest_of_next(backend: EchoBackend, table: list[int]) -> tuple[int | object, ...]:
    """A few sampled next tokens: one alone may agree by chance."""
    last = len(PROMPT) - 1
    return tuple(backend.run([Chunk(PROMPT[-1:], last, table, Sampler(1.0, seed=s))])[0] for s in range(24))


def test_the_same_tokens_after_another_prefix_are_another_kv() -> None:
    backend = EchoBackend(block_size=4)
    backend.run([Chunk(list(b"aaaabbbbcccc"), 0, [0, 1, 2])])
    backend.run([Chunk(list(b"zzzzbbbbcccc"), 0, [3, 4, 5])])
    pairs = [
        [backend.run([Chunk(list(b"d"), 12, table, Sampler(1.0, seed=s))])[0] for s in range(24)]
        for table in ([0, 1, 2, 6], [0, 4, 2, 7])
    ]
    assert pairs[0] != pairs[1]


def test_a_copied_block_serves_like_its_source() -> None:
    backend = EchoBackend()
    backend.run([Chunk(PROMPT[:32], 0, [0, 1])])
    backend.copy_blocks([(1, 9)])
    answers = []
    for table in ([0, 1, 2, 3], [0, 9, 4, 5]):
        answers.append(backend.run([Chunk(PROMPT[32:48], 32, table, GREEDY)]))
    assert answers[0] == answers[1]


def test_answers_are_readable_and_of_varied_length() -> None:
    lengths = []
    for index in range(25):
        backend = EchoBackend()
        prompt = TOKENIZER.encode_chat([ChatMessage("user", f"question {index}")])
        output = answer(backend, list(range(64)), prompt, 64)
        text = TOKENIZER.decode(output)
        assert "�" not in text
        assert text.isprintable()
        lengths.append(len(output))
    assert min(lengths) >= 20
    assert max(lengths) <= 205
    assert len(set(lengths)) > 10


def test_a_seed_changes_the_answer_and_repeats_it() -> None:
    table = list(range(64))
    first, again, other = (answer(EchoBackend(), table, PROMPT, 64, Sampler(1.0, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_pieces_of_an_answer_are_its_text() -> None:
    output = answer(EchoBackend(), list(range(64)), PROMPT, 64)
    detokenizer = TOKENIZER.detokenizer()
    assert "".join(map(detokenizer.feed, output)) + detokenizer.flush() == TOKENIZER.decode(output)


def test_markers_cannot_be_written_as_text() -> None:
    token_ids = TOKENIZER.encode_chat([ChatMessage("user", "<|im_start|>\u0100")])
    assert [id for id in token_ids if id > 255] == [258, 256, 259]


def test_a_table_that_does_not_cover_the_chunk_is_an_error() -> None:
    with pytest.raises(ValueError, match="block table"):
        EchoBackend().run([Chunk(PROMPT, 0, [0], GREEDY)])


def test_a_step_takes_the_time_it_is_told() -> None:
    backend = EchoBackend(step_ms=30)
    started = time.monotonic()
    backend.run([Chunk(PROMPT, 0, list(range(8)), GREEDY)])
    assert time.monotonic() - started >= 0.03
