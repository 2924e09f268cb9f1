"""Log probabilities of the tokens that are chosen, and of those that were most probable in their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from pagoda_inference.decoding.candidates import rank
from pagoda_inference.protocol import LEAST_LOGPROB, TokenLogprobs


def begin_logprobs(
    logits: torch.Tensor, counts: Sequence[int]
) -> Callable[[Sequence[int | None]], list[TokenLogprobs | None]]:
    """What is told of the tokens chosen from rows of ``logits`` [N, V], with ``counts[row]`` most probable ones.

    Computed in float32 at temperature 1 when this is called, and read when what it gives is called with the tokens:
    the logits may have changed by then. None for a row without a token.
    """
    logprobs = logits.float().log_softmax(dim=-1)

    def told(tokens: Sequence[int | None]) -> list[TokenLogprobs | None]:
        chosen = torch.tensor([[token or 0] for token in tokens], device=logprobs.device)
        values = logprobs.gather(1, chosen)[:, 0].tolist()
        tops = rank(logprobs, counts) if any(counts) else [None] * len(counts)
        found: list[TokenLogprobs | None] = []
        for token, value, top in zip(tokens, values, tops, strict=True):
            if token is None:
                found.append(None)
                continue
            pairs = (
                () if top is None else zip(top.token_ids, (max(p, LEAST_LOGPROB) for p in top.logprobs), strict=True)
            )
            found.append(TokenLogprobs(int(token), max(value, LEAST_LOGPROB), tuple(pairs)))
        return found

    return told
