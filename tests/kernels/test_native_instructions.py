"""What processors without this machine's instructions run gives the same numbers, within rounding."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from pagoda_kernels.native.build import BuildError, build
from pagoda_kernels.native.library import NativeLibrary
from pagoda_kernels.native.quantization import quantize
from tests.kernels.paged_case import PagedCase

OTHERS = {
    "no_bf16": ["-mno-avx512bf16"],
    "no_vnni": ["-mno-avx512bf16", "-mno-avx512vnni", "-mno-avxvnni"],
    "avx2": ["-march=x86-64-v3"],
    "sse2": ["-march=x86-64", "-Wno-psabi"],
}
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86"),
]


@pytest.fixture(scope="module", params=OTHERS)
def other(request: pytest.FixtureRequest, build_home: Path, native: NativeLibrary) -> NativeLibrary:
    namespace = f"-Dpagoda=pagoda_{request.param}"  # two libraries of one process would share their templates' statics
    try:
        return NativeLibrary(build(build_home / "build", [*OTHERS[request.param], namespace]))
    except BuildError as error:
        pytest.skip(str(error))


def near(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    greatest = float((actual.double() - expected.double()).abs().max() / expected.double().abs().max())
    return greatest < TOLERANCE[expected.dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("inner", "columns"), [(64, 96), (33, 41)])
def test_products(native: NativeLibrary, other: NativeLibrary, dtype: torch.dtype, inner: int, columns: int) -> None:
    torch.manual_seed(inner)
    weight, bias = torch.randn(columns, inner).to(dtype), torch.randn(columns).to(dtype)
    for rows in (1, 3, 16, 31):
        inputs = torch.randn(rows, inner).to(dtype)
        ours, theirs = (each.linear(inputs, each.pack(weight), bias, columns) for each in (native, other))
        assert near(theirs, ours)
        assert torch.equal(theirs[-1:], other.linear(inputs[-1:], other.pack(weight), bias, columns))
        for bits in (4, 8):
            rounded = quantize(weight, bits)
            ours, theirs = (
                each.quantized_linear(inputs, each.pack_quantized(rounded), bits, bias, columns)
                for each in (native, other)
            )
            assert near(theirs, ours)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_attention(native: NativeLibrary, other: NativeLibrary, dtype: torch.dtype) -> None:
    case = PagedCase.make([(1, 90), (20, 70), (5, 5)], dtype=dtype)
    ours, theirs = (
        each.paged_attention(case.query, case.key_pool, case.value_pool, case.batch, scaling=0.3, sliding_window=50)
        for each in (native, other)
    )
    assert near(theirs, ours)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_what_lies_between(native: NativeLibrary, other: NativeLibrary, dtype: torch.dtype) -> None:
    inputs, weight = torch.randn(5, 66).to(dtype), torch.randn(66).to(dtype)
    assert near(other.rms_norm(inputs, weight, 1e-5), native.rms_norm(inputs, weight, 1e-5))
    assert near(other.silu_multiply(inputs), native.silu_multiply(inputs))
