"""What the kernels' benchmark measures: each call with the bytes that it cannot do without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from pagoda_kernels import Kernels, PagedBatch

if TYPE_CHECKING:
    from bench.kernels import Sample

PREFILL_SEQUENCES = 4


@dataclass(frozen=True)
class Case:
    """call: the work. bytes: what it reads and writes at least; 0 where memory is not what bounds it."""

    call: Callable[[], Any]
    bytes: int = 0


def attention_cases(
    sample: Sample,
    kernels: Kernels,
    device: torch.device,
    dtype: torch.dtype,
    block_size: int,
    *,
    kind: str,
    compiled: bool,
) -> dict[str, Case]:
    """Ours, and torch's on the same numbers. ``kind``: decode, or prefill of whole prompts."""
    decode = kind == "decode"
    sequences = sample.sequences if decode else min(PREFILL_SEQUENCES, sample.sequences)
    context, length = sample.context, 1 if decode else sample.context
    keys, values = (
        torch.randn(sequences, sample.kv_heads, context, sample.head_size, device=device, dtype=dtype) for _ in range(2)
    )
    query = torch.randn(sequences, sample.kv_heads * sample.group, length, sample.head_size, device=device, dtype=dtype)
    key_pool, value_pool, tables = paged(keys, values, block_size)
    stream = query.transpose(1, 2).flatten(0, 1).contiguous()
    batch = PagedBatch(
        query_starts=torch.arange(sequences + 1, dtype=torch.int32, device=device) * length,
        context_lengths=torch.full((sequences,), context, dtype=torch.int32, device=device),
        block_tables=tables,
        slots=torch.zeros(len(stream), dtype=torch.int64, device=device),
        longest_query=length,
        longest_context=context,
    )
    scaling = sample.head_size**-0.5

    def ours() -> torch.Tensor:
        return kernels.paged_attention(stream, key_pool, value_pool, batch, scaling=scaling)

    def sdpa() -> torch.Tensor:
        attended = functional.scaled_dot_product_attention(
            query, keys, values, is_causal=not decode, scale=scaling, enable_gqa=True
        )
        return attended.transpose(1, 2).flatten(0, 1)

    flex = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention
    mask = None if decode else create_block_mask(_causal, None, None, length, context, device=device.type)

    def flexible() -> torch.Tensor:
        attended = flex(query, keys, values, block_mask=mask, scale=scaling, enable_gqa=True)
        return attended.transpose(1, 2).flatten(0, 1)

    needed = keys.nbytes + values.nbytes if decode else 0
    return {"ours": Case(ours, needed), "sdpa": Case(sdpa), "flex": Case(flexible)}


def _causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def paged(keys: torch.Tensor, values: torch.Tensor, block_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """keys and values [S, Hkv, context, D] in blocks in random order: (key pool, value pool, tables)."""
    sequences, kv_heads, context, _ = keys.shape
    per_sequence = context // block_size
    assert per_sequence * block_size == context, "contexts of whole blocks"
    order = torch.randperm(sequences * per_sequence, device=keys.device)

    def pool(numbers: torch.Tensor) -> torch.Tensor:
        blocks = numbers.view(sequences, kv_heads, per_sequence, block_size, -1).transpose(1, 2).flatten(0, 1)
        shuffled = torch.empty_like(blocks)
        shuffled[order] = blocks
        return shuffled

    tables = order.view(sequences, per_sequence).int()
    return pool(keys).transpose(2, 3), pool(values), tables.contiguous()


def layer_cases(sample: Sample, kernels: Kernels, device: torch.device, dtype: torch.dtype) -> dict[str, Case]:
    """The other kernels, for a step of ``sequences`` tokens and for a prefill of 4,096 (fewer in small samples)."""
    layers = kernels.layers
    assert layers is not None
    cases: dict[str, Case] = {}
    hidden = sample.kv_heads * sample.group * sample.head_size

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=dtype)

    for tokens in (sample.sequences, min(4096, 64 * sample.sequences)):
        rows, residual, weight = random(tokens, hidden), random(tokens, hidden), random(hidden)
        gate_up = random(tokens, 7 * hidden)
        query = random(tokens, sample.kv_heads * sample.group, sample.head_size)
        keys, values = (
            random(tokens, sample.kv_heads, sample.head_size),
            random(tokens, sample.kv_heads, sample.head_size),
        )
        angles = torch.randn(tokens, sample.head_size // 2, device=device)
        blocks = -(-tokens // 16)
        pools = [random(blocks, sample.kv_heads, 16, sample.head_size) for _ in range(2)]
        slots = torch.randperm(blocks * 16, device=device)[:tokens]
        cases |= {
            f"rms_norm.{tokens}": Case(
                lambda rows=rows, weight=weight, residual=residual: layers.rms_norm(
                    rows, weight, 1e-6, residual=residual
                ),
                4 * rows.nbytes,
            ),
            f"rotate.{tokens}": Case(
                lambda query=query, keys=keys, angles=angles: layers.rotate(query, keys, angles, angles),
                2 * (query.nbytes + keys.nbytes + angles.nbytes),
            ),
            f"gated_activation.{tokens}": Case(
                lambda gate_up=gate_up: layers.gated_activation(gate_up), 3 * gate_up.nbytes // 2
            ),
            f"write_kv.{tokens}": Case(
                lambda keys=keys, values=values, pools=pools, slots=slots: kernels.write_kv(
                    keys, values, pools[0].transpose(2, 3), pools[1], slots
                ),
                4 * keys.nbytes,
            ),
        }
    pools = [random(64, sample.kv_heads, 16, sample.head_size) for _ in range(64)]
    pairs = torch.tensor([(index, 32 + index) for index in range(32)], device=device)
    cases["copy_blocks.32"] = Case(lambda: kernels.copy_blocks(pools, pairs), sum(pool.nbytes for pool in pools))
    logits = torch.randn(sample.sequences, sample.vocabulary, device=device) * 4
    uniforms = torch.rand(sample.sequences, device=device, dtype=torch.float64)
    ones = torch.ones(sample.sequences, device=device)
    cases |= {
        "sample.greedy": Case(lambda: layers.sample(logits, uniforms, 0 * ones), logits.nbytes),
        "sample.plain": Case(lambda: layers.sample(logits, uniforms, ones), logits.nbytes),
        "sample.top_p": Case(lambda: layers.sample(logits, uniforms, ones, top_p=0.9 * ones), logits.nbytes),
        "sample.top_k": Case(
            lambda: layers.sample(logits, uniforms, ones, top_k=torch.full_like(ones, 50, dtype=torch.int32)),
            logits.nbytes,
        ),
        "sample.by_sorting": Case(lambda: _sorted_top_p(logits), 0),
    }
    return cases


def _sorted_top_p(logits: torch.Tensor) -> torch.Tensor:
    """Top-p as it is written in torch, for comparison: sort, cumulate, mask, draw."""
    ranked, ids = logits.sort(dim=-1, descending=True)
    weights = ranked.softmax(dim=-1)
    weights = weights.masked_fill(weights.cumsum(dim=-1) - weights >= 0.9, 0)
    return ids.gather(1, weights.multinomial(1)).squeeze(1)
