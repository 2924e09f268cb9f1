"""Triton's attention gives what the reference gives, whatever the options, the shape and the cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagoda_kernels.triton_attention.launch import Cut
from pagoda_kernels.triton_attention.tiling import Tiling
from tests.kernels.triton_attention.attention_case import TOLERANCE, AttentionCase

MIXED = [(1, 1), (1, 37), (19, 19), (3, 40)]
NARROW = Tiling(rows=16, tokens=16, warps=4, stages=2)
IN_PARTS = Cut(part=16, decode=NARROW)
OPTIONS: dict[str, dict[str, Any]] = {
    "sliding_window": {"sliding_window": 9},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": torch.linspace(-1, 3, 6)},
    "alibi_slopes": {"alibi_slopes": torch.linspace(0.05, 0.5, 6)},
}
everything = {name: value for option in OPTIONS.values() for name, value in option.items()}


@st.composite
def sequences(draw: st.DrawFn) -> list[tuple[int, int]]:
    lengths = []
    for _ in range(draw(st.integers(1, 3))):
        query = draw(st.sampled_from([1, 1, 2, 5, 8, 21]))
        lengths.append((query, query + draw(st.sampled_from([0, 3, 16, 45]))))
    return lengths


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a case is made from, and what attention is called with."""
    kv_heads, group = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 3, 4, 7]))
    head_size = draw(st.sampled_from([64, 80, 96, 128, 256, 20]))
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
    made_from: dict[str, Any] = {
        "lengths": draw(sequences()),
        "query_heads": kv_heads * group,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "value_size": draw(st.sampled_from([head_size, 48])),
        "block_size": draw(st.sampled_from([8, 16, 32, 64, 256, 5, 1])),
        "dtype": dtype,
        "float8": draw(st.booleans()),
        "slots_inside": draw(st.booleans()),
        "seed": draw(st.integers(0, 99)),
    }
    parameters: dict[str, Any] = {
        "scaling": head_size**-0.5,
        "sliding_window": draw(st.sampled_from([None, 1, 12, 100])),
        "softcap": draw(st.sampled_from([None, 2.0, 30.0])),
        "sinks": draw(st.sampled_from([None, torch.linspace(-2, 4, kv_heads * group).to(dtype)])),
        "alibi_slopes": draw(st.sampled_from([None, torch.linspace(0.01, 0.7, kv_heads * group)])),
        "architecture": draw(st.sampled_from([80, 90])),
    }
    cut = Cut(
        limit=draw(st.sampled_from([None, 0, 2, 64])),
        part=draw(st.sampled_from([None, 16, 32])),
        decode=draw(st.sampled_from([None, NARROW])),
        prefill=draw(st.sampled_from([None, NARROW])),
    )
    return made_from, {**parameters, "cut": cut}


@settings(max_examples=25, derandomize=True)
@given(problems())
def test_any_shape_with_any_options(problem: tuple[dict[str, Any], dict[str, Any]]) -> None:
    made_from, parameters = problem
    AttentionCase.make(**made_from).check(**parameters)


@pytest.mark.slow
@settings(max_examples=400)
@given(problems())
def test_many_shapes_with_any_options(problem: tuple[dict[str, Any], dict[str, Any]]) -> None:
    made_from, parameters = problem
    AttentionCase.make(**made_from).check(**parameters)


@pytest.mark.parametrize("cut", [Cut(), IN_PARTS, Cut(limit=0)], ids=["mixed", "in parts", "prefill"])
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_counts(option: str, cut: Cut) -> None:
    case = AttentionCase.make(MIXED)
    output = case.triton(cut=cut, **OPTIONS[option])
    torch.testing.assert_close(output, case.reference(**OPTIONS[option]), **TOLERANCE[torch.float32])
    assert float((output - case.reference()).abs().max()) > 0.1, "without the option the answer would be the same"


@pytest.mark.parametrize("architecture", [80, 90], ids=["bits", "converted by the GPU"])
def test_scales_of_float8_pools_count(architecture: int) -> None:
    case = AttentionCase.make(MIXED, float8=True, dtype=torch.float16)
    case.check(architecture=architecture)
    output = case.triton(architecture=architecture)
    for name in ("key_scale", "value_scale"):
        assert float((output - case.reference(**{name: None})).abs().max()) > 0.1


@pytest.mark.parametrize("part", [16, 32, 4096])
def test_drafts_of_up_to_eight_tokens_are_decoded(part: int) -> None:
    case = AttentionCase.make([(8, 50), (1, 33), (5, 5)], query_heads=10)
    case.check(cut=Cut(part=part, decode=NARROW), **{**everything, "sinks": None, "alibi_slopes": None})


def test_more_query_heads_than_a_tile_has_rows() -> None:
    case = AttentionCase.make([(1, 20), (2, 9)], query_heads=70, kv_heads=1)
    case.check()
    case.check(cut=Cut(limit=0, prefill=NARROW))


def test_every_number_of_float8_is_read_from_its_bits() -> None:
    """Keys are zero, so that the answer is the mean of two values: a number of the format, and a zero."""
    case = AttentionCase.make([(1, 2)], query_heads=1, kv_heads=1, value_size=256, float8=True, block_size=2)
    case.case.key_pool = torch.zeros_like(case.case.key_pool.float()).to(torch.float8_e4m3fn)
    block = int(case.case.batch.block_tables[0, 0])
    bits = torch.arange(256).to(torch.uint8)
    case.case.value_pool[block, 0] = torch.stack([bits, torch.zeros_like(bits)]).view(torch.float8_e4m3fn)
    case.scales = {}
    output = case.triton()[0, 0]
    assert torch.equal(output.isnan(), (bits & 0x7F) == 0x7F)
    torch.testing.assert_close(output, bits.view(torch.float8_e4m3fn).float() / 2, rtol=1e-6, atol=0, equal_nan=True)


def test_a_strided_query_is_read_by_its_strides() -> None:
    case = AttentionCase.make(MIXED)
    expected = case.triton()
    case.case.query = case.case.query.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert torch.equal(case.triton(), expected)


def test_a_sequence_without_query_tokens_is_left_out() -> None:
    """Padding of a batch, as a recorded graph of launches has it."""
    case = AttentionCase.make(MIXED)
    expected = case.triton()
    batch = case.case.batch
    batch.query_starts = torch.cat([batch.query_starts, batch.query_starts[-1:]])
    batch.context_lengths = torch.cat([batch.context_lengths, torch.zeros(1, dtype=torch.int32)])
    batch.block_tables = torch.cat([batch.block_tables, torch.full_like(batch.block_tables[:1], -1)])
    for cut in (Cut(), Cut(limit=0)):
        torch.testing.assert_close(case.triton(cut=cut), expected, rtol=1e-6, atol=1e-6)
