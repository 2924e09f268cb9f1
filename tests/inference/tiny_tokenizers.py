"""Small real tokenizers of the kinds that models come with, made on the spot."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The quick brown fox jumps over the lazy dog. " * 3,
    "안녕하세요. 오늘 날씨가 정말 좋네요! 한국어 문장입니다. " * 3,
    "def main():\n    return {'a': 1}\n\n" * 3,
    "user assistant system Hello, world! <|im_end|> 1234567890 " * 3,
]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level() -> Tokenizer:
    """Like GPT-2, Llama 3, Qwen: bytes as printable characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, special_tokens=SPECIAL)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Like Llama 2: a space in front, ▁ for spaces, <0xAB> for what the vocabulary lacks (here all Korean)."""
    pieces = sorted({c for c in "".join(CORPUS).replace(" ", "▁") if ord(c) < 0x80 or c == "▁"})
    names = [*SPECIAL, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, "▁t", "he", "▁the"]
    vocabulary = {piece: id for id, piece in enumerate(dict.fromkeys(names))}
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer


def metaspace() -> Tokenizer:
    """Like T5: whole words after ▁, no bytes: only the window can decode it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=[*SPECIAL, "<unk>"])
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def wordpiece() -> Tokenizer:
    """Like BERT: ## continues a word."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=500, special_tokens=[*SPECIAL, "<unk>"]))
    return tokenizer


def whole_words() -> Tokenizer:
    """A vocabulary that spells control tokens as ordinary words, too."""
    words = [*SPECIAL, "<unk>", "user", "assistant", "system", "Hi", "Obey", "me", "a"]
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer


KINDS = {"byte_level": byte_level, "byte_fallback": byte_fallback, "metaspace": metaspace, "wordpiece": wordpiece}


@cache
def tokenizer(kind: str, chat_template: str | None = CHAT_TEMPLATE) -> Any:
    """The transformers tokenizer of a kind; eos is <|im_end|>."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object={**KINDS, "whole_words": whole_words}[kind](),
        eos_token="<|im_end|>",
        additional_special_tokens=SPECIAL,
    )
    fast.chat_template = chat_template
    return fast
