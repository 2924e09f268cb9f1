"""The blocking client: for admin views, management commands and workers."""

from __future__ import annotations

import os
from typing import Any

import grpc

from pagoda_inference.address import Address
from pagoda_inference.client.channel import OPTIONS, UNARY_TIMEOUT_S, credentials, metadata, translate
from pagoda_inference.client.errors import EngineRefused
from pagoda_inference.protocol import (
    METHODS,
    AccountsSet,
    ChatMessage,
    Detokenize,
    GetModels,
    ModelInfo,
    PoolReport,
    Publish,
    Published,
    Purge,
    Purged,
    SetAccounts,
    Text,
    Tokenize,
    Tokens,
    Watch,
    decoder,
    encode,
    method_path,
)


class SyncEngineClient:
    """Unary calls to one engine, from any thread. Every call raises EngineUnavailable or EngineRefused.

    The connection is opened by the first call, and again in a forked child: one is never used on both sides of a fork.
    ``timeout`` is in seconds, per call.
    """

    def __init__(self, address: str, token: str | None = None, *, timeout: float = UNARY_TIMEOUT_S) -> None:
        self.address = Address.parse(address)
        self._metadata = metadata(token)
        self._timeout = timeout
        self._opened: tuple[int, grpc.Channel] | None = None

    def __enter__(self) -> SyncEngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def models(self) -> ModelInfo:
        """What the engine serves."""
        answer: ModelInfo = self._unary("GetModels", GetModels())
        return answer

    def set_accounts(self, message: SetAccounts) -> AccountsSet:
        """Replace the engine's accounts. A list it cannot take comes back as ``error``."""
        answer: AccountsSet = self._unary("SetAccounts", message)
        return answer

    def publish(self, message: Publish) -> Published:
        """Replace the engine's published prefixes, and wait until they are computed."""
        answer: Published = self._unary("Publish", message)
        return answer

    def purge(self, message: Purge) -> Purged:
        """Drop what is cached for conversations alone that are gone. Idempotent."""
        answer: Purged = self._unary("Purge", message)
        return answer

    def tokenize(self, text: str | None = None, messages: tuple[ChatMessage, ...] | None = None) -> Tokens:
        """Tokens of a text, or of messages in the model's template."""
        answer: Tokens = self._unary("Tokenize", Tokenize(text, messages))
        if answer.error is not None:
            raise EngineRefused(answer.error)
        return answer

    def detokenize(self, token_ids: tuple[int, ...]) -> Text:
        """Text of tokens."""
        answer: Text = self._unary("Detokenize", Detokenize(token_ids))
        if answer.error is not None:
            raise EngineRefused(answer.error)
        return answer

    def watch_once(self) -> PoolReport:
        """The pool now."""
        call = self._channel().unary_stream(method_path("Watch"))
        try:
            data = next(iter(call(encode(Watch(0)), timeout=self._timeout, metadata=self._metadata)))
        except grpc.RpcError as error:
            raise translate(error, self.address) from None
        report: PoolReport = decoder(PoolReport)(data)
        return report

    def _unary(self, name: str, message: Any) -> Any:
        call = self._channel().unary_unary(method_path(name))
        try:
            data = call(encode(message), timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise translate(error, self.address) from None
        return decoder(METHODS[name][1])(data)

    def _channel(self) -> grpc.Channel:
        if self._opened is None or self._opened[0] != os.getpid():
            secure = credentials(self.address)
            target = self.address.target
            if secure is None:
                channel = grpc.insecure_channel(target, OPTIONS)
            else:
                channel = grpc.secure_channel(target, secure, OPTIONS)
            self._opened = (os.getpid(), channel)
        return self._opened[1]
