"""Texts of single tokens, for log probabilities: asked of the engine once, and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from pagoda.api import tokenizing
from pagoda.api.wire import ChoiceLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob
from pagoda.generations.calls import Order
from pagoda_inference.protocol import TokenLogprobs

REMEMBERED_TOKENS = 200_000
INCOMPLETE = "\ufffd"

_texts: dict[tuple[str, int], str] = {}


class TokenTexts:
    """Of one model's tokens. ``learn`` those that are needed, then read them."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._model = f"{order.model.id} {order.model.version} {order.model.vocabulary_size}"

    def __getitem__(self, token_id: int) -> str:
        return _texts[self._model, token_id]

    async def learn(self, tokens: Sequence[TokenLogprobs]) -> None:
        """Ask for what is not known yet. Raises ApiError."""
        wanted = {token.token_id for token in tokens} | {top for token in tokens for top, _ in token.top}
        missing = [token for token in wanted if (self._model, token) not in _texts]
        if not missing:
            return
        if len(_texts) > REMEMBERED_TOKENS:
            _texts.clear()
            missing = list(wanted)
        texts = await asyncio.gather(*(tokenizing.text_of_tokens(self._order.address, (each,)) for each in missing))
        _texts.update(zip(((self._model, token) for token in missing), texts, strict=True))

    def of_chat(self, tokens: Iterable[TokenLogprobs]) -> ChoiceLogprobs:
        """As chat completions tell them."""
        content = [
            TokenLogprob(
                token=self[token.token_id],
                logprob=token.logprob,
                bytes=_bytes(self[token.token_id]),
                top_logprobs=[TopLogprob(self[top], logprob, _bytes(self[top])) for top, logprob in token.top],
            )
            for token in tokens
        ]
        return ChoiceLogprobs(content)

    def of_completion(self, tokens: Sequence[TokenLogprobs], offsets: list[int], *, top: bool) -> CompletionLogprobs:
        """As text completions tell them. offsets: of each token, as ``Offsets`` counts them."""
        return CompletionLogprobs(
            tokens=[self[token.token_id] for token in tokens],
            token_logprobs=[token.logprob for token in tokens],
            top_logprobs=[{self[each]: logprob for each, logprob in token.top} for token in tokens] if top else None,
            text_offset=offsets,
        )


class Offsets:
    """Where tokens begin in the text of one answer, in characters; those of one character begin where it does.

    How many characters a run of parts makes is seen when their text comes; until then they count as one.
    """

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._told = 0
        self._held_back = 0
        self._in_parts = False

    def of(self, tokens: Sequence[TokenLogprobs], text: str) -> list[int]:
        """Offsets of the next tokens. text: what came with them, less or more than theirs where some is held back."""
        offsets = []
        for token in tokens:
            own = self._texts[token.token_id]
            is_part = INCOMPLETE in own
            if self._in_parts and not is_part:
                self._held_back += 1
            self._in_parts = is_part
            offsets.append(self._told + self._held_back)
            self._held_back += 0 if is_part else len(own)
        if len(text) > self._held_back:
            self._in_parts = False
        self._told += len(text)
        self._held_back = max(0, self._held_back - len(text))
        return offsets


def _bytes(text: str) -> list[int] | None:
    """None where the token is a part of a character, whose bytes the text does not tell."""
    return None if INCOMPLETE in text else list(text.encode())
