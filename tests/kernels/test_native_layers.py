"""Native layers equal torch's, and a row's result does not depend on the rows beside it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pagoda_kernels.native.library import NativeLibrary

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3}


def difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected.double()).abs().max() / expected.double().abs().max())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", [1, 2, 7, 12, 13, 15, 50])
@pytest.mark.parametrize(("inner", "columns", "biased"), [(64, 96, True), (33, 7, False), (7, 130, True)])
def test_linear(native: NativeLibrary, dtype: torch.dtype, rows: int, inner: int, columns: int, biased: bool) -> None:
    torch.manual_seed(rows)
    weight, inputs = torch.randn(columns, inner).to(dtype), torch.randn(rows, inner).to(dtype)
    bias = torch.randn(columns).to(dtype) if biased else None
    packed = native.pack(weight)
    output = native.linear(inputs, packed, bias, columns)
    expected = functional.linear(inputs.double(), weight.double(), None if bias is None else bias.double())
    assert output.dtype == dtype
    assert difference(output, expected) < TOLERANCE[dtype]
    for row in range(rows):
        assert torch.equal(native.linear(inputs[row : row + 1], packed, bias, columns)[0], output[row])


def test_linear_of_a_strided_input(native: NativeLibrary) -> None:
    weight, inputs = torch.randn(20, 8), torch.randn(5, 16)
    output = native.linear(inputs[:, 8:], native.pack(weight), None, 20)
    assert difference(output, inputs[:, 8:].double() @ weight.double().T) < 1e-5


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("inner", [8, 9])
def test_linear_keeps_what_is_not_a_number_in_its_row(native: NativeLibrary, dtype: torch.dtype, inner: int) -> None:
    inputs = torch.ones(4, inner, dtype=dtype)
    inputs[1, 0] = torch.nan
    inputs[2, 0] = torch.inf
    output = native.linear(inputs, native.pack(torch.ones(4, inner, dtype=dtype)), None, 4)
    assert output[0].tolist() == output[3].tolist() == [float(inner)] * 4
    assert output[1].isnan().all()
    assert output[2].isposinf().all()


def test_bfloat16_products_of_whole_numbers_are_exact(native: NativeLibrary) -> None:
    torch.manual_seed(3)
    weight, inputs = torch.randint(-8, 9, (70, 129)), torch.randint(-8, 9, (16, 129))
    output = native.linear(inputs.bfloat16(), native.pack(weight.bfloat16()), None, 70)
    assert torch.equal(output, (inputs @ weight.T).bfloat16())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [8, 40, 33])
def test_rms_norm(native: NativeLibrary, dtype: torch.dtype, size: int) -> None:
    inputs, weight = torch.randn(2, 3, size).to(dtype), torch.randn(size).to(dtype)
    expected = functional.rms_norm(inputs.double(), (size,), weight.double(), 1e-5)
    assert difference(native.rms_norm(inputs, weight, 1e-5), expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rotate_turns_a_view_in_place(native: NativeLibrary, dtype: torch.dtype) -> None:
    heads = torch.randn(5, 4, 16).to(dtype)
    angles = torch.randn(5, 8).repeat(1, 2)
    cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
    before = heads.clone()
    native.rotate(heads[:, :3], cosine, sine)
    turned = torch.cat([-before[..., 8:], before[..., :8]], dim=-1).double()
    expected = before.double() * cosine[:, None].double() + turned * sine[:, None].double()
    assert difference(heads[:, :3], expected[:, :3]) < TOLERANCE[dtype]
    assert torch.equal(heads[:, 3], before[:, 3])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [8, 21, 64])
def test_silu_multiply(native: NativeLibrary, dtype: torch.dtype, size: int) -> None:
    gate_up = (torch.randn(3, 2 * size) * 20).to(dtype)
    expected = functional.silu(gate_up[:, :size].double()) * gate_up[:, size:].double()
    assert difference(native.silu_multiply(gate_up), expected) < TOLERANCE[dtype]
