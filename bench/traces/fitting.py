"""Requests that a server's context has no room for: cut, or left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.traces.request import TracedRequest

LEAST_CONTEXT = 2
"""Tokens: one of the prompt and one of the answer."""


@dataclass(frozen=True)
class Fitted:
    """Requests that can be sent. cut: how many of them are shorter than in the trace. too_long, empty: how many are
    left out."""

    requests: list[TracedRequest]
    cut: int
    too_long: int
    empty: int


def fit(requests: Sequence[TracedRequest], context: int, long: Literal["cut", "skip"]) -> Fitted:
    """Prompt and answer together within ``context`` tokens.

    An answer is cut to half of the context first, then the prompt to its beginning: what it shares with other prompts
    stays. Requests without a prompt or an answer are left out, and all where the context is of less than 2 tokens: it
    has no room for one of each.
    """
    kept, cut, too_long, empty = [], 0, 0, 0
    for request in requests:
        if not request.prompt_tokens or not request.output_tokens:
            empty += 1
        elif request.prompt_tokens + request.output_tokens <= context:
            kept.append(request)
        elif long == "skip" or context < LEAST_CONTEXT:
            too_long += 1
        else:
            kept.append(_cut(request, context))
            cut += 1
    return Fitted(kept, cut, too_long, empty)


def _cut(request: TracedRequest, context: int) -> TracedRequest:
    output = min(request.output_tokens, max(1, context // 2, context - request.prompt_tokens))
    prompt = min(request.prompt_tokens, context - output)
    return dataclasses.replace(request, prompt_tokens=prompt, output_tokens=output)
