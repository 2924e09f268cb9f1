"""Products with weights of 4 and 8 bits, and the rounding of weights to them."""

from __future__ import annotations

import pytest
import torch

from pagoda_kernels.native.library import NativeLibrary
from pagoda_kernels.native.quantization import GROUP, quantize

DTYPES = {torch.float32: 1e-5, torch.bfloat16: 8e-3}
"""Greatest error, relative to the greatest number: of rounding the output alone."""


def rounded_inputs(inputs: torch.Tensor) -> torch.Tensor:
    """Each group of 32 in 8 bits, by its greatest magnitude: float64 of the shape of ``inputs``."""
    rows, inner = inputs.shape
    groups = -(-inner // GROUP)
    filled = torch.zeros(rows, groups * GROUP, dtype=torch.float64)
    filled[:, :inner] = inputs.double()
    filled = filled.view(rows, groups, GROUP)
    factor = filled.abs().amax(-1, keepdim=True) / 127
    return (torch.where(factor > 0, (filled / factor).round(), 0.0) * factor).flatten(1)[:, :inner]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 7, 9, 35, 70])
@pytest.mark.parametrize(("inner", "columns", "biased"), [(64, 96, True), (33, 7, False), (7, 130, True)])
def test_product(
    native: NativeLibrary, dtype: torch.dtype, bits: int, rows: int, inner: int, columns: int, biased: bool
) -> None:
    torch.manual_seed(rows)
    inputs = torch.randn(rows, inner).to(dtype)
    bias = torch.randn(columns).to(dtype) if biased else None
    weight = quantize(torch.randn(columns, inner), bits)
    packed = native.pack_quantized(weight)
    output = native.quantized_linear(inputs, packed, bits, bias, columns)
    expected = rounded_inputs(inputs) @ weight.dequantize().double().T + (0 if bias is None else bias.double())
    assert output.dtype == dtype
    assert float((output.double() - expected).abs().max() / expected.abs().max()) < DTYPES[dtype]
    for row in range(rows):
        alone = native.quantized_linear(inputs[row : row + 1], packed, bits, bias, columns)
        assert torch.equal(alone[0], output[row])


@pytest.mark.parametrize("bits", [4, 8])
def test_greatest_numbers_do_not_overflow(native: NativeLibrary, bits: int) -> None:
    weight = quantize(torch.tensor([[1.0] * 32 + [-1.0] * 32, [-1.0] + [1.0] * 63, [0.0] + [1.0] * 63]), bits)
    for sign in (1.0, -1.0):
        inputs = torch.full((3, 64), sign * 5)
        output = native.quantized_linear(inputs, native.pack_quantized(weight), bits, None, 3)
        assert torch.allclose(output, inputs @ weight.dequantize().T, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_not_a_number_stays_in_its_row(native: NativeLibrary, bits: int) -> None:
    inputs = torch.ones(4, 64)
    inputs[1, 2], inputs[2, 40], inputs[3] = torch.nan, -torch.inf, 0
    weight = quantize(torch.ones(5, 64), bits)
    output = native.quantized_linear(inputs, native.pack_quantized(weight), bits, None, 5)
    assert torch.allclose(output[0], torch.full((5,), 64.0), rtol=1e-2)
    assert not output[1].isfinite().any()
    assert not output[2].isfinite().any()
    assert output[3].tolist() == [0.0] * 5


def test_a_strided_input(native: NativeLibrary) -> None:
    weight, inputs = quantize(torch.randn(20, 32), 8), torch.randn(5, 64)
    packed = native.pack_quantized(weight)
    output = native.quantized_linear(inputs[:, 32:], packed, 8, None, 20)
    assert torch.equal(output, native.quantized_linear(inputs[:, 32:].contiguous(), packed, 8, None, 20))


def levels(bits: int, columns: int = 12, groups: int = 3) -> torch.Tensor:
    """Random levels whose groups reach both ends, as whoever quantised them saw to."""
    values = torch.randint(0, 2**bits, (columns, groups, GROUP))
    values[..., 3], values[..., 11] = 0, 2**bits - 1
    return values


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "ours"])
def test_weights_that_have_been_rounded_are_found_again(kind: str) -> None:
    torch.manual_seed(1)
    scale = (torch.rand(12, 3, 1) * 0.1 + 0.01).half().float()
    if kind == "Q4_1":
        weight = levels(4) * scale + (torch.randn(12, 3, 1) * 0.3).half().float()
    elif kind == "Q4_0":  # the greatest magnitude is level 0, the other end is not always reached
        weight = (levels(4).clamp(max=13) - 8) * scale * torch.where(torch.rand(12, 3, 1) < 0.5, 1, -1)
    elif kind == "Q8_0":
        weight = (levels(8) - 128).clamp(min=-127) * scale
    else:
        weight = quantize(torch.randn(12, 3 * GROUP), 4).dequantize().view(12, 3, GROUP)
    weight = weight.flatten(1)
    again = quantize(weight, 8 if kind == "Q8_0" else 4).dequantize()
    assert float((again - weight).abs().max()) < 1e-6


@pytest.mark.parametrize(("bits", "most"), [(4, 0.5 / 15), (8, 0.5 / 127)])
def test_no_weight_moves_by_more_than_half_a_step(bits: int, most: float) -> None:
    torch.manual_seed(2)
    weight = torch.rand(40, 50) - 0.3
    ranges = weight.view(40, 50)[:, :32].amax(1) - weight[:, :32].amin(1).clamp(max=0)
    errors = (quantize(weight, bits).dequantize() - weight)[:, :32].square().mean(1).sqrt()
    assert bool((errors <= most * ranges * 1.01).all())


def test_groups_of_one_value_and_of_zeros() -> None:
    weight = torch.zeros(2, 64)
    weight[1] = 0.75
    for bits in (4, 8):
        assert float((quantize(weight, bits).dequantize() - weight).abs().max()) < 1e-3


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e7])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_that_cannot_be_rounded_are_refused(value: float, bits: int) -> None:
    weight = torch.zeros(2, 64)
    weight[1, 5] = value
    with pytest.raises(ValueError, match="not finite"):
        quantize(weight, bits)


def test_other_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="4 or 8 bits"):
        quantize(torch.zeros(2, 64), 5)
