"""Pieces of text joined are the text of all tokens, whatever the tokenizer and wherever characters are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda_inference.decoding.detokenizer import ByteDetokenizer, WindowDetokenizer
from pagoda_inference.model.tokenizer import TransformersTokenizer
from tests.inference.tiny_tokenizers import KINDS, tokenizer

TEXTS = [
    "Hello, world!",
    " leading and trailing  ",
    "안녕하세요, 오늘은 날씨가 좋네요.",
    "family 👨‍👩‍👧‍👦 flag 🇰🇷 skin 👍🏽 done",
    "mixed 한글 and 日本語 and عربى\n\n\tcode {x: 1}",
    "",
]


def pieces(kind: str, token_ids: list[int]) -> list[str]:
    detokenizer = TransformersTokenizer(tokenizer(kind)).detokenizer()
    return [*map(detokenizer.feed, token_ids), detokenizer.flush()]


def whole(kind: str, token_ids: list[int]) -> str:
    fast: Any = tokenizer(kind)
    return str(fast.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_joined_are_the_whole_text(kind: str, text: str) -> None:
    token_ids = tokenizer(kind).encode(text)
    assert "".join(pieces(kind, token_ids)) == whole(kind, token_ids)


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_byte_tokenizers_give_the_text_back(kind: str, text: str) -> None:
    assert "".join(pieces(kind, tokenizer(kind).encode(text))) == text


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), text=st.text(max_size=40))
def test_pieces_joined_are_the_whole_text_for_any_text(kind: str, text: str) -> None:
    token_ids = tokenizer(kind).encode(text)
    assert "".join(pieces(kind, token_ids)) == whole(kind, token_ids)


@settings(max_examples=150, deadline=None)
@given(token_ids=st.lists(st.integers(0, 499), max_size=40))
def test_any_tokens_of_a_byte_level_model_are_decoded_as_the_whole(token_ids: list[int]) -> None:
    assert "".join(pieces("byte_level", token_ids)) == whole("byte_level", token_ids)


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(["metaspace", "wordpiece"]), token_ids=st.lists(st.integers(4, 250), max_size=40))
def test_any_tokens_of_a_window_decoded_model_are_decoded_as_the_whole(kind: str, token_ids: list[int]) -> None:
    assert "".join(pieces(kind, token_ids)) == whole(kind, token_ids)


def test_a_character_appears_when_its_last_byte_does() -> None:
    detokenizer = ByteDetokenizer(lambda id: bytes([id]))
    assert [detokenizer.feed(byte) for byte in "한a".encode()] == ["", "", "한", "a"]


def test_a_stray_byte_costs_one_replacement_and_holds_nothing_up() -> None:
    detokenizer = ByteDetokenizer(lambda id: bytes([id]))
    assert [detokenizer.feed(byte) for byte in b"a\xffb"] == ["a", "�", "b"]


def test_an_incomplete_character_at_the_end_is_a_replacement() -> None:
    detokenizer = ByteDetokenizer(lambda id: bytes([id]))
    assert detokenizer.feed(0xED) == ""
    assert detokenizer.flush() == "�"


def test_a_window_does_not_wait_forever_for_a_character() -> None:
    detokenizer = WindowDetokenizer(lambda ids: bytes(ids).decode(errors="replace"))
    assert "".join(detokenizer.feed(byte) for byte in [0xFF] * 50) == "�" * 48
    assert detokenizer.flush() == "�" * 2


def test_special_and_unknown_tokens_have_no_text() -> None:
    fast = tokenizer("byte_level")
    assert "".join(pieces("byte_level", [*fast.encode("a"), fast.eos_token_id, 100_000, *fast.encode("b")])) == "ab"


def test_what_is_decoded_for_a_token_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = TransformersTokenizer._decode_window

    def counted(chat: TransformersTokenizer, token_ids: Sequence[int]) -> str:
        decoded.append(len(token_ids))
        return decode(chat, token_ids)

    monkeypatch.setattr(TransformersTokenizer, "_decode_window", counted)
    detokenizer = TransformersTokenizer(tokenizer("metaspace")).detokenizer()
    token_ids = tokenizer("metaspace").encode("The quick brown fox. ") * 60
    work = []
    for part in (token_ids, token_ids * 3):
        decoded.clear()
        for token_id in part:
            detokenizer.feed(token_id)
        work.append(sum(decoded) / len(part))
    assert 0 < work[1] < 1.1 * work[0]
