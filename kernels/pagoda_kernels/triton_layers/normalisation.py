"""Root mean square normalisation of a residual stream, with what a layer adds to it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from pagoda_kernels.triton_attention.tiling import Budget, power_of_two

BUDGET = Budget(registers=64, shared_bytes=128)

WIDEST = 16384
"""Numbers of a row that one program holds at once; a wider row is refused."""


@triton.jit
def rms_norm_kernel(
    inputs,
    residual,
    weight,
    output,
    size,
    epsilon,
    input_stride,
    residual_stride,
    output_stride,
    UNIT_OFFSET: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Grid: (rows,). A row stays in registers: it is read once, however often it is needed."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    inside = columns < size
    numbers = tl.load(inputs + row * input_stride + columns, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        stream = residual + row * residual_stride + columns
        numbers += tl.load(stream, mask=inside, other=0.0).to(tl.float32)
        summed = numbers.to(residual.dtype.element_ty)
        tl.store(stream, summed, mask=inside)
        numbers = summed.to(tl.float32)  # what the stream keeps is what is normalised
    scale = tl.rsqrt(tl.sum(numbers * numbers, axis=0) / size + epsilon)
    gain = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    if UNIT_OFFSET:
        gain += 1.0
    tl.store(output + row * output_stride + columns, (numbers * scale * gain).to(output.dtype.element_ty), mask=inside)


def rms_norm(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    *,
    residual: torch.Tensor | None = None,
    unit_offset: bool = False,
) -> torch.Tensor:
    """As ``layer_reference.rms_norm``. Raises ValueError for rows of more than 16,384 numbers."""
    rows, size = inputs.shape
    if size > WIDEST:
        raise ValueError(f"a row of {size} numbers is wider than {WIDEST}")
    inputs = inputs if inputs.stride(1) == 1 else inputs.contiguous()
    output = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    width = power_of_two(size)
    if rows:
        rms_norm_kernel[(rows,)](
            inputs,
            residual,
            weight,
            output,
            size,
            epsilon,
            inputs.stride(0),
            0 if residual is None else residual.stride(0),
            output.stride(0),
            UNIT_OFFSET=unit_offset,
            WIDTH=width,
            num_warps=min(16, max(1, width // 512)),
        )
    return output
