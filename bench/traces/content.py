"""The tokens of traced prompts: the same wherever the trace says that they are the same, and nowhere else."""

from __future__ import annotations

import random

from bench.traces.request import TracedRequest


class Content:
    """Prompts of token ids in ``lowest``..``highest``, both included.

    A block's tokens are a function of its id. Without blocks a conversation is one sequence of tokens, of which each
    prompt is a beginning. A request without either is like no other.
    """

    def __init__(self, seed: int, lowest: int, highest: int) -> None:
        self._seed = seed
        self._ids = range(lowest, highest + 1)

    def prompt(self, request: TracedRequest, number: int) -> list[int]:
        """``request.prompt_tokens`` ids. number: of the request in the trace."""
        if request.blocks:
            tokens: list[int] = []
            for block in request.blocks:
                tokens += self._drawn(f"block {block}", request.block_tokens)
            return tokens[: request.prompt_tokens]
        if request.conversation:
            return self._drawn(f"conversation {request.client} {request.conversation}", request.prompt_tokens)
        return self._drawn(f"request {number}", request.prompt_tokens)

    def _drawn(self, what: str, count: int) -> list[int]:
        """Drawn one after the other, so that fewer of the same are a beginning of more."""
        return random.Random(f"{self._seed} {what}").choices(self._ids, k=count)
