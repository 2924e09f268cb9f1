"""A decoder layer in one native call has the bits of its parts called one by one, whichever are fused inside."""

from __future__ import annotations

import pytest
import torch

from pagoda_kernels.native.arguments import AttentionArguments, LayerArguments, LinearArguments
from pagoda_kernels.native.library import NativeLibrary
from pagoda_kernels.native.quantization import quantize
from tests.kernels.paged_case import PagedCase

HEADS, KV_HEADS, HEAD = 6, 2, 16
HIDDEN = HEADS * HEAD


class Weight:
    """A packed weight of 0 (as it is), 4 or 8 bits, with or without a bias."""

    def __init__(self, native: NativeLibrary, columns: int, inner: int, bits: int, dtype: torch.dtype, bias: bool):
        weight = (torch.randn(columns, inner) * inner**-0.5).to(dtype)
        self._native, self._bits, self._columns, self._inner = native, bits, columns, inner
        self._packed = native.pack_quantized(quantize(weight, bits)) if bits else native.pack(weight)
        self._bias = torch.randn(columns).to(dtype) if bias else None

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        if self._bits:
            return self._native.quantized_linear(inputs, self._packed, self._bits, self._bias, self._columns)
        return self._native.linear(inputs, self._packed, self._bias, self._columns)

    def arguments(self) -> LinearArguments:
        bias = None if self._bias is None else self._bias.data_ptr()
        return LinearArguments(self._packed.data_ptr(), bias, self._columns, self._inner, self._bits)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("middle", [64, 33], ids=["whole_panels", "parts_of_panels"])
@pytest.mark.parametrize("bits", [0, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[(1, 9)], [(1, 100), (17, 40), (1, 1)], [(70, 70)]], ids=["one", "mixed", "chunk"])
def test_bits(
    native: NativeLibrary, lengths: list[tuple[int, int]], dtype: torch.dtype, bits: int, middle: int, biased: bool
) -> None:
    case = PagedCase.make(
        lengths, query_heads=HEADS, kv_heads=KV_HEADS, head_size=HEAD, value_size=HEAD, dtype=dtype, seed=middle
    )
    rows = case.query.shape[0]
    norms = [torch.rand(HIDDEN).to(dtype) for _ in range(2)]
    qkv = Weight(native, (HEADS + 2 * KV_HEADS) * HEAD, HIDDEN, bits, dtype, biased)
    output = Weight(native, HIDDEN, HIDDEN, bits, dtype, biased)
    gate_up = Weight(native, 2 * middle, HIDDEN, bits, dtype, biased)
    down = Weight(native, HIDDEN, middle, bits, dtype, biased)
    hidden = torch.randn(rows, HIDDEN).to(dtype)
    angles = torch.randn(rows, HEAD // 2).repeat(1, 2)
    cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
    keys, values = case.key_pool.clone(), case.value_pool.clone()

    heads = qkv(native.rms_norm(hidden, norms[0], 1e-5)).view(rows, -1, HEAD)
    native.rotate(heads[:, : HEADS + KV_HEADS], cosine, sine)
    native.write_kv(heads[:, HEADS : HEADS + KV_HEADS], heads[:, HEADS + KV_HEADS :], keys, values, case.batch.slots)
    attended = native.paged_attention(heads[:, :HEADS], keys, values, case.batch, scaling=0.25)
    between = hidden + output(attended.flatten(1))
    expected = between + down(native.silu_multiply(gate_up(native.rms_norm(between, norms[1], 1e-5))))

    result = torch.empty_like(hidden)
    batch, key_pool, value_pool = case.batch, case.key_pool, case.value_pool
    attention = AttentionArguments(
        query_starts=batch.query_starts.data_ptr(), context_lengths=batch.context_lengths.data_ptr(),
        block_tables=batch.block_tables.data_ptr(), table_stride=batch.block_tables.stride(0), sequences=len(lengths),
        query_heads=HEADS, kv_heads=KV_HEADS, head_size=HEAD, value_size=HEAD, block_size=value_pool.shape[2],
        scaling=0.25, threads=2,
    )  # fmt: skip
    arguments = LayerArguments(
        qkv=qkv.arguments(), output=output.arguments(), gate_up=gate_up.arguments(), down=down.arguments(),
        input_norm=norms[0].data_ptr(), post_norm=norms[1].data_ptr(), input_epsilon=1e-5, post_epsilon=1e-5,
        attention=attention, key_pool=key_pool.data_ptr(), value_pool=value_pool.data_ptr(),
        slots=batch.slots.data_ptr(), input=hidden.data_ptr(), cosine=cosine.data_ptr(), sine=sine.data_ptr(),
        result=result.data_ptr(), rows=rows, rotary_size=HEAD,
    )  # fmt: skip
    native.decoder_layer(dtype, arguments)
    assert torch.equal(result, expected)
    assert torch.equal(key_pool.nan_to_num(), keys.nan_to_num())
    assert torch.equal(value_pool.nan_to_num(), values.nan_to_num())
