"""Text from tokens, token by token, so that the pieces joined are the text of all tokens together.

Two ways to do it. Where a tokenizer's tokens are byte strings (byte-level BPE, SentencePiece with byte fallback), an
incremental UTF-8 decoder over those bytes: constant time per token, characters appear when they are complete, and an
invalid byte costs one replacement character without holding up what follows. Every other tokenizer: decode a short
window twice and emit the difference.

``tokenizers.decoders.DecodeStream`` is not used: it refuses token sequences that are not valid text ("Invalid prefix
encountered"), which a sampled model does produce, and it holds back everything after a stray byte.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

_REPLACEMENT = "\ufffd"
LONGEST_CHARACTER = 4
"""Bytes of a UTF-8 character, hence tokens that one character can be spread over."""


class Detokenizer(Protocol):
    """The text of one sequence's output. One object per sequence."""

    def feed(self, token_id: int) -> str:
        """The text that this token completes; '' while a character is incomplete or for a special token."""
        ...

    def flush(self) -> str:
        """The end of the sequence: what is left, an incomplete character as U+FFFD."""
        ...


class ByteDetokenizer:
    """For tokens that are byte strings.

    token_bytes: the bytes of a token id, b'' for special and unknown ones (shared by all sequences, so cached there).
    strip: leading spaces to drop from the text (SentencePiece puts one in front of it).
    """

    def __init__(self, token_bytes: Callable[[int], bytes], strip: int = 0) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = strip

    def feed(self, token_id: int) -> str:
        return self._stripped(self._decoder.decode(self._token_bytes(token_id)))

    def flush(self) -> str:
        return self._stripped(self._decoder.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        while self._strip and text:
            if text[0] != " ":
                self._strip = 0
                break
            text = text[1:]
            self._strip -= 1
        return text


class WindowDetokenizer:
    """For any tokenizer: decodes the tokens since the last-but-one output, with and without the new ones.

    decode: text of a list of tokens. skipped: ids that have no text (special tokens).
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], skipped: Collection[int] = ()) -> None:
        self._decode = decode
        self._skipped = skipped
        self._window: list[int] = []
        self._emitted_tokens = 0
        self._emitted_text = ""

    def feed(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        self._window.append(token_id)
        text = self._decode(self._window)
        waiting = len(self._window) - self._emitted_tokens
        if text.endswith(_REPLACEMENT) and waiting < LONGEST_CHARACTER:
            return ""
        return self._emit(text)

    def flush(self) -> str:
        return self._emit(self._decode(self._window)) if self._window else ""

    def _emit(self, text: str) -> str:
        delta = text[len(self._emitted_text) :]
        if delta:
            self._window = self._window[self._emitted_tokens :]
            self._emitted_tokens = len(self._window)
            self._emitted_text = self._decode(self._window)
        return delta


def byte_pieces(tokenizer: Any) -> tuple[Callable[[int], bytes], int] | None:
    """How to read the tokens of a ``transformers`` fast tokenizer as bytes: (bytes of an id, leading spaces to strip).

    None when its decoder is of another kind: then a WindowDetokenizer has to do.
    """
    import json

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.decoder is None:
        return None
    decoder = json.loads(backend.decoder.__getstate__())
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps if step["type"] != "Fuse"]
    special = {id for id, token in backend.get_added_tokens_decoder().items() if token.special}
    if kinds == ["ByteLevel"]:
        return _CachedBytes(backend.id_to_token, special, _byte_level_bytes), 0
    strips = steps[-1]["start"] if kinds and kinds[-1] == "Strip" and steps[-1]["content"] == " " else 0
    spaces = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    if steps[0] == spaces and kinds in (["Replace", "ByteFallback"], ["Replace", "ByteFallback", "Strip"]):
        return _CachedBytes(backend.id_to_token, special, _byte_fallback_bytes), strips
    return None


class _CachedBytes:
    """Token id -> bytes, computed once per token."""

    def __init__(
        self, id_to_token: Callable[[int], str | None], special: Collection[int], convert: Callable[[str], bytes]
    ) -> None:
        self._id_to_token = id_to_token
        self._convert = convert
        self._known: dict[int, bytes] = dict.fromkeys(special, b"")

    def __call__(self, token_id: int) -> bytes:
        known = self._known.get(token_id)
        if known is None:
            token = self._id_to_token(token_id)
            known = self._known[token_id] = b"" if token is None else self._convert(token)
        return known


def _byte_alphabet() -> dict[str, int]:
    """The printable character that byte-level BPE writes for each byte (GPT-2's table), inverted."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return alphabet


_ALPHABET = _byte_alphabet()


def _byte_level_bytes(token: str) -> bytes:
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:  # an added token: plain text
        return token.encode()


def _byte_fallback_bytes(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            pass
    return token.replace("▁", " ").encode()
