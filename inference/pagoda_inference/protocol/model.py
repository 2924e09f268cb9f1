"""The model: what it is, and its tokenizer."""

from __future__ import annotations

from pagoda_inference.protocol.generation import ChatMessage
from pagoda_inference.protocol.message import Error, Message


class GetModels(Message, frozen=True):
    pass


class ModelInfo(Message, frozen=True):
    """What the engine serves. ``bytes_per_block`` is the KV of one block over all layers."""

    id: str
    context_length: int
    vocabulary_size: int
    dtype: str
    device: str
    block_size: int
    total_blocks: int
    bytes_per_block: int
    instance: str
    """Changes with every start of the engine: a different one means that all generations of before are lost."""
    version: str = ""
    longest_token: int = 128
    """No token says more characters of a text than this. A longer text than so many times the context fits nowhere."""


class Tokenize(Message, frozen=True):
    text: str | None = None
    messages: tuple[ChatMessage, ...] | None = None


class Tokens(Message, frozen=True):
    token_ids: tuple[int, ...] = ()
    error: Error | None = None


class Detokenize(Message, frozen=True):
    token_ids: tuple[int, ...]


class Text(Message, frozen=True):
    text: str = ""
    error: Error | None = None
