"""The KV-echo model: a model without weights whose every token depends on every KV entry it may read.

It exists to test what surrounds a model. An entry is a digest of the entry before it, read through the block table, and
its own token and position, as a real model's KV depends on the whole prefix; the next token is a hash of all entries
that the block table names. Any stale, aliased, foreign or unwritten block therefore changes the answer, and equal
prompts give equal answers however they were scheduled, preempted or cached. Needs no torch.

Tokens are bytes, and three turn markers and an end. Answers are readable: words of ASCII letters with some Korean and
emoji, whose characters span several tokens; 20 to 200 tokens long in a chat. What beam search sees, and what is told
as log probabilities, is another such hash, spread over the tokens that may follow; in the middle of a character there
are few of them. An answer with a grammar follows it. Penalties and biases change nothing: there are no logits.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from pagoda_inference.decoding.answer_state import answer_of
from pagoda_inference.decoding.detokenizer import ByteDetokenizer, Detokenizer
from pagoda_inference.decoding.grammar_trial import byte_tokenizer
from pagoda_inference.decoding.guide import Guide, allowed_tokens
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Candidates, Chunk, Result, accept
from pagoda_inference.model.launched import ComputedAtLaunch
from pagoda_inference.model.tokenizer import LONGEST_TOKEN, ChatTemplateError, generated_ids
from pagoda_inference.protocol import LEAST_LOGPROB, ChatMessage, TokenLogprobs

if TYPE_CHECKING:
    from llguidance import LLTokenizer

END = 256
_ROLES = {"system": 257, "user": 258, "assistant": 259}
_VOCABULARY = 260
_SHORTEST_ANSWER, _LONGEST_ANSWER = 20, 200
_END_PROBABILITY = 1 / 60
_SCORE_RANGE = 8.0
"""Between the most and the least probable candidate of a beam, in nats."""

_ALPHABET = tuple(
    character.encode()
    for character in [*"eeeetttaaaooonnniiisssrrrhhhlddduuccmmffyywwgpbvk     ", *"가나다한글말", *"🙂🌱🏯"]
)
_CLOSING = frozenset([END, *b'"}]'])
_ENTRY = struct.Struct("<IIIQ")
"""One KV entry: token, position, position of the answer's start, digest of everything up to here."""


def bytes_per_block(block_size: int) -> int:
    """Of a block of so many tokens."""
    return block_size * _ENTRY.size


class EchoBackend(ComputedAtLaunch):
    """Backend of the KV-echo model.

    step_ms: least duration of a step, in milliseconds, so that timing can be tested.
    """

    vocabulary_size = _VOCABULARY
    dtype = "bytes"
    device = "cpu"
    fingerprint = "echo"

    def __init__(
        self, *, block_size: int = 16, pool_tokens: int = 16384, context_length: int = 4096, step_ms: float = 0
    ) -> None:
        self.block_size = block_size
        self.total_blocks = max(1, pool_tokens // block_size)
        self.bytes_per_block = bytes_per_block(block_size)
        self.context_length = context_length
        self._step_s = step_ms / 1000
        self._pool = bytearray(self.total_blocks * self.bytes_per_block)

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        end = time.monotonic() + self._step_s
        for chunk in chunks:
            self._write(chunk)
        results = [self._choose(chunk) for chunk in chunks]
        if (left := end - time.monotonic()) > 0:
            time.sleep(left)
        return results

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        size = self.bytes_per_block
        for source, destination in pairs:
            self._pool[destination * size : (destination + 1) * size] = self._pool[source * size : (source + 1) * size]

    def read_blocks(self, ids: Sequence[int]) -> list[bytearray]:
        size = self.bytes_per_block
        return [self._pool[id * size : (id + 1) * size] for id in ids]

    def write_blocks(self, ids: Sequence[int], payloads: Sequence[bytes | bytearray | memoryview]) -> None:
        size = self.bytes_per_block
        for id, payload in zip(ids, payloads, strict=True):
            self._pool[id * size : (id + 1) * size] = payload

    def _write(self, chunk: Chunk) -> None:
        tokens = [*chunk.token_ids, *chunk.drafts]
        if not chunk.token_ids or chunk.start + len(tokens) > len(chunk.block_table) * self.block_size:
            raise ValueError("a chunk needs at least one token and a block table that covers it")
        answer_start, digest = 0, 0
        if chunk.start:
            _, _, answer_start, digest = self._read(chunk, chunk.start - 1)
        for position, token in enumerate(tokens, start=chunk.start):
            if token in (END, _ROLES["assistant"]):
                answer_start = position
            digest = _hash(struct.pack("<IIQ", token, position, digest))
            _ENTRY.pack_into(self._pool, self._offset(chunk, position), token, position, answer_start, digest)

    def _choose(self, chunk: Chunk) -> Result:
        if chunk.candidates:
            return self._candidates(chunk, chunk.candidates)
        if chunk.sampler is None:
            return None
        if chunk.forks:
            return tuple(self._next_token(chunk, sampler) for sampler in (chunk.sampler, *chunk.forks))
        if chunk.drafts:
            places = range(len(chunk.drafts) + 1)
            return accept(chunk.drafts, [self._next_token(chunk, chunk.sampler, place) for place in places])
        return self._next_token(chunk, chunk.sampler)

    def _next_token(self, chunk: Chunk, sampler: Sampler, drafts: int = 0) -> int:
        """The token after the chunk and so many of its drafts."""
        position = chunk.start + len(chunk.token_ids) + drafts
        seed = self._hash_of_context(chunk, position)
        if not sampler.greedy and sampler.top_k != 1:
            seed = _hash(struct.pack("<Qd", seed, sampler.uniform(position)))
        answer = answer_of(sampler)
        if answer is None:
            return self._said(chunk, position, seed)
        token = self._said(chunk, position, seed) if answer.guide is None else _guided(answer.guide, seed)
        if answer.processing.logprobs is not None:
            everything = self._candidates(chunk, _VOCABULARY)
            answer.tell(position, _told(token, everything, answer.processing.logprobs))
        return token

    def _said(self, chunk: Chunk, position: int, seed: int) -> int:
        """What is said at ``position``, of what ``seed`` chooses from."""
        begun = self._begun_character(chunk, position)
        length = self._answer_length(chunk, position)
        may_end = not begun and length >= _SHORTEST_ANSWER
        if may_end and (length >= _LONGEST_ANSWER or seed % 1_000_003 < 1_000_003 * _END_PROBABILITY):
            return END
        choices = _continuations(begun)
        return choices[seed % len(choices)]

    def _candidates(self, chunk: Chunk, count: int) -> Candidates:
        """A pseudo distribution over the tokens that may follow, a function of every entry that is read."""
        position = chunk.start + len(chunk.token_ids)
        seed = self._hash_of_context(chunk, position)
        begun = self._begun_character(chunk, position)
        length = self._answer_length(chunk, position)
        tokens = set(_continuations(begun))
        if not begun and length >= _SHORTEST_ANSWER:
            tokens.add(END)
        scores = {token: _hash(struct.pack("<QI", seed, token)) / 2**64 * _SCORE_RANGE for token in tokens}
        if END in scores and length >= _LONGEST_ANSWER:
            scores[END] += _SCORE_RANGE
        total = math.log(sum(math.exp(scores[token]) for token in sorted(scores)))
        ranked = sorted(scores, key=lambda token: (-scores[token], token))[:count]
        return Candidates(tuple(ranked), tuple(scores[token] - total for token in ranked))

    def _answer_length(self, chunk: Chunk, position: int) -> int:
        return position - 1 - self._read(chunk, position - 1)[2]

    def _hash_of_context(self, chunk: Chunk, length: int) -> int:
        """Hash of the entries of positions 0..length-1, block by block through the table."""
        digest = blake2b(digest_size=8)
        size = self.bytes_per_block
        left = length * _ENTRY.size
        for block in chunk.block_table:
            digest.update(self._pool[block * size : block * size + min(size, left)])
            left -= size
            if left <= 0:
                break
        return int.from_bytes(digest.digest(), "little")

    def _begun_character(self, chunk: Chunk, length: int) -> bytes:
        """The bytes before ``length`` that begin a multi-byte character of the alphabet; b'' between characters."""
        tail = b""
        for position in range(length - 1, max(-1, length - 4), -1):
            token = self._read(chunk, position)[0]
            if token >= END or token < 0x80:
                break
            tail = bytes([token]) + tail
            if token >= 0xC0:
                unfinished = any(c.startswith(tail) and c != tail for c in _ALPHABET)
                return tail if unfinished else b""
        return b""

    def _offset(self, chunk: Chunk, position: int) -> int:
        block, slot = divmod(position, self.block_size)
        return (chunk.block_table[block] * self.block_size + slot) * _ENTRY.size

    def _read(self, chunk: Chunk, position: int) -> tuple[int, int, int, int]:
        return _ENTRY.unpack_from(self._pool, self._offset(chunk, position))


class EchoTokenizer:
    """ChatTokenizer of the KV-echo model: the bytes of the text; a marker in front of each turn, an end behind it."""

    eos_token_ids = frozenset([END])
    longest_token = LONGEST_TOKEN

    def encode_chat(self, messages: Sequence[ChatMessage], continue_final: bool = False) -> list[int]:
        if not messages:
            raise ChatTemplateError("there are no messages")
        if continue_final and messages[-1].role != "assistant":
            raise ChatTemplateError("only an assistant's message can be continued")
        token_ids: list[int] = []
        for message in messages:
            content = generated_ids(message, self, range(END)) or message.content.encode()
            token_ids += [_ROLES[message.role], *content, END]
        return token_ids[:-1] if continue_final else [*token_ids, _ROLES["assistant"]]

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(map(_token_bytes, token_ids)).decode(errors="replace")

    def detokenizer(self) -> Detokenizer:
        return ByteDetokenizer(_token_bytes)

    def grammar_tokenizer(self, vocabulary_size: int) -> LLTokenizer:
        return byte_tokenizer(vocabulary_size - END)


def _guided(guide: Guide, seed: int) -> int:
    """A token that a grammar allows: one that closes something every other time, otherwise a visible character."""
    bits, failed = allowed_tokens([guide])
    if failed:
        raise failed[0]
    allowed = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()
    closing = [token for token in allowed if token in _CLOSING]
    if closing and seed % 2:
        return closing[seed // 2 % len(closing)]
    visible = [token for token in allowed if ord(" ") < token < 0x7F]
    choices = visible or allowed
    return choices[seed // 2 % len(choices)]


def _told(token: int, everything: Candidates, count: int) -> TokenLogprobs:
    pairs = list(zip(everything.token_ids, everything.logprobs, strict=True))
    return TokenLogprobs(token, dict(pairs).get(token, LEAST_LOGPROB), tuple(pairs[:count]))


@cache
def _continuations(begun: bytes) -> tuple[int, ...]:
    """The next byte of each character of the alphabet that begins with ``begun``, as often as there are such."""
    return tuple(character[len(begun)] for character in _ALPHABET if character.startswith(begun) and character != begun)


def _token_bytes(token_id: int) -> bytes:
    return bytes([token_id]) if 0 <= token_id < END else b""


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
