"""Layers and sampling in plain torch: what the kernels of a GPU have to equal."""

from __future__ import annotations

import torch
from torch.nn import functional


def rms_norm(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    *,
    residual: torch.Tensor | None = None,
    unit_offset: bool = False,
) -> torch.Tensor:
    """Root mean square normalisation (arXiv 1910.07467) of the rows of ``inputs`` [T, H], times ``weight`` [H].

    residual: [T, H]; ``inputs`` are added to it, in place, and it is what is normalised. unit_offset: the weight is
    kept as its difference from 1 (Gemma). Computed in float32. Returns [T, H] in the inputs' dtype.
    """
    stream = inputs.float()
    if residual is not None:
        residual.add_(inputs)
        stream = residual.float()
    scale = torch.rsqrt(stream.square().mean(dim=-1, keepdim=True) + epsilon)
    return (stream * scale * (weight.float() + unit_offset)).to(inputs.dtype)


def rotate(
    query: torch.Tensor, key: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, *, interleaved: bool = False
) -> None:
    """Rotary position embedding (arXiv 2104.09864) of ``query`` [T, Hq, D] and ``key`` [T, Hkv, D], in place.

    cosine, sine: [T, R], of the angle of each of R <= D / 2 pairs of dimensions; the dimensions from 2 R on stay.
    interleaved: pair i is (2 i, 2 i + 1) (GPT-J), otherwise (i, i + R) (GPT-NeoX, Llama). Computed in float32.
    """
    pairs = cosine.shape[1]
    cosine, sine = cosine.float()[:, None], sine.float()[:, None]
    for heads in (query, key):
        turned = heads[..., : 2 * pairs]
        left, right = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.split(pairs, dim=-1)
        x, y = left.float(), right.float()
        rotated = x * cosine - y * sine, y * cosine + x * sine  # both, before x or y may change: float() may not copy
        left.copy_(rotated[0])
        right.copy_(rotated[1])


def gated_activation(gate_up: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """activation(gate) * up of ``gate_up`` [T, 2 F], gates first: SwiGLU, or GeGLU with "gelu_tanh".

    arXiv 2002.05202. Computed in float32. Returns [T, F] in the input's dtype. Raises ValueError for another
    activation.
    """
    gate, up = gate_up.float().chunk(2, dim=-1)
    if activation == "silu":
        opened = functional.silu(gate)
    elif activation == "gelu_tanh":
        opened = functional.gelu(gate, approximate="tanh")
    else:
        raise ValueError(f"activation silu or gelu_tanh, not {activation}")
    return (opened * up).to(gate_up.dtype)


def sample(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    temperatures: torch.Tensor,
    *,
    top_k: torch.Tensor | None = None,
    top_p: torch.Tensor | None = None,
    min_p: torch.Tensor | None = None,
) -> torch.Tensor:
    """The next token of each row of ``logits`` [N, V]: int64 [N], or -1 where a row's logits are no numbers.

    A row's tokens are ranked by logit, equal ones by id. Temperature 0 takes the first. Otherwise logits are divided
    by it, and these tokens are kept: of all, the first ``top_k``; of their probability, those before which less than
    ``top_p`` of it lies; and of these, the ones at least ``min_p`` times as probable as the first. The token is drawn
    from what is kept by inverse transform, in the order of ids: the first whose cumulated weight exceeds the row's
    uniform number times the sum. A row whose greatest logit is NaN or infinite is answered -1; -inf is a masked token.

    uniforms: float64 [N] in [0, 1). temperatures: float32 [N]. top_k: int32 [N], all where it is 0 or at least V.
    top_p, min_p: float32 [N], of no effect at 1 and 0. Rows do not influence one another.
    """
    tokens = torch.full(logits.shape[:1], -1, dtype=torch.int64, device=logits.device)
    for row, scores in enumerate(logits.double()):
        greatest = scores.max()  # NaN is the greatest of all
        if not greatest.isfinite():
            continue
        if temperatures[row] == 0:
            tokens[row] = scores.argmax()  # the first of several
            continue
        weights = ((scores - greatest) / temperatures[row].double()).exp()
        count = 0 if top_k is None else int(top_k[row])
        share = 1.0 if top_p is None else float(top_p[row])
        if 0 < count < len(weights) or share < 1:
            weights = _first_of_the_ranking(scores, weights, count or len(weights), share)
        if min_p is not None:
            weights = torch.where(weights >= min_p[row].double(), weights, 0)
        cumulated = weights.cumsum(0)
        first_above = int((cumulated <= uniforms[row].double() * cumulated[-1]).sum())
        tokens[row] = min(first_above, int((cumulated < cumulated[-1]).sum()))
    return tokens


def _first_of_the_ranking(scores: torch.Tensor, weights: torch.Tensor, count: int, share: float) -> torch.Tensor:
    """``weights`` [V] of the first ``count`` by score and of those of them before which less than ``share`` lies."""
    ids = scores.argsort(descending=True, stable=True)
    ranked = weights[ids]
    ranked[count:] = 0
    if share < 1:
        before = ranked.cumsum(0) - ranked
        ranked = torch.where(before < share * ranked.sum(), ranked, 0)
        ranked[0] = 1
    return torch.zeros_like(weights).scatter(0, ids, ranked)
